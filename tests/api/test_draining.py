"""A draining server answers probes and questions, refuses work, and lets running requests end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

MESSAGE = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    with serving(EchoEngine(), tokenizer, drain_timeout=30) as served:
        assert httpx.get(served.url + "/health/ready").json() == {"status": "ok"}
        reply = served.post("/admin/drain", {})
        assert reply.json() == {"status": "draining", "num_open": 0, "timeout_s": 0.0}
        yield served


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/batches", "/nowhere"])
def test_new_work_is_refused_with_advice(served: Served, path: str) -> None:
    reply = served.post(path, {})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining")
    assert (reply.headers["retry-after"], reply.headers["connection"]) == ("5", "close")
    assert reply.headers["x-request-id"]


def test_anthropic_clients_get_their_own_status(served: Served) -> None:
    reply = served.post("/v1/messages", {})
    assert (reply.status_code, reply.json()["error"]["type"]) == (529, "overloaded_error")


def test_readiness_ends_and_liveness_stays(served: Served) -> None:
    ready = httpx.get(served.url + "/health/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
    for path in ("/health", "/health/live", "/ping"):
        assert httpx.get(served.url + path).json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/v1/batches", "/admin/cache"])
def test_questions_are_still_answered(served: Served, path: str) -> None:
    assert httpx.get(served.url + path).status_code == 200


def test_a_drain_takes_its_timeout(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path)) as served:
        for wrong in (-1, 1e9, "soon"):
            reply = served.post("/admin/drain", {"timeout_s": wrong})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "timeout_s")
        assert httpx.get(served.url + "/health/ready").status_code == 200
        assert served.post("/admin/drain", {"timeout_s": 7.5}).json()["timeout_s"] == 7.5
        assert served.post("/admin/drain", {"timeout_s": 9}).json()["timeout_s"] == 7.5


def test_only_an_administrator_begins_a_drain(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="ann", admin_api_key="root") as served:
        for key, status in (("bob", 401), ("ann", 403)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.post(served.url + "/admin/drain", headers=headers).status_code == status
        assert httpx.get(served.url + "/health/ready").status_code == 200
        assert served.post("/admin/drain", {}, headers={"authorization": "Bearer root"}).status_code == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_probes_need_no_key(path: str, tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="secret") as served:
        assert httpx.get(served.url + path).json() == {"status": "ok"}
