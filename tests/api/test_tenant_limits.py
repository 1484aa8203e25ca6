"""Limits of tenants, in key files and of authenticators: live requests are refused, those in the background wait."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.api.access.authenticators import Authenticators, InUse
from llmfw.core import Authenticator, Credentials, Principal, TenantLimits
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

from ..doubles.echo_engine import FULL, EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, memory_stores, serving, wait_until

KEYS = """
once=once-0123456789abcdef requests_per_minute=1
fast=fast-0123456789abcdef requests_per_minute=600
wordy=wordy-0123456789abcdef tokens_per_minute=60
narrow=narrow-0123456789abcdef max_requests=3 max_queued_requests=2
free=free-0123456789abcdef
"""


class ByName(Authenticator):
    """Knows "odd:NAME:REQUESTS", where REQUESTS is the tenant's number of requests per minute."""

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        kind, _, rest = (credentials.bearer() or "").partition(":")
        name, _, number = rest.partition(":")
        if kind != "odd":
            return None
        limits = TenantLimits(requests_per_minute=int(number)) if number else None
        return Principal(tenant=name, limits=limits)


@contextmanager
def serving_stored(folder: Path, engine: EchoEngine) -> Iterator[Served]:
    """Serve with batches and files in a folder."""
    entry = Entry("authenticator", "odd", "x:Y", "odd_plugin", "odd", "1.0")
    used = InUse(ByName(ByName.Options()), ComponentCalls(entry))
    (folder / "model").mkdir(exist_ok=True)
    with serving(
        engine,
        byte_tokenizer(folder / "model"),
        authenticators="odd",
        authenticator_objects=Authenticators([used]),
        stores={**memory_stores(), "files": SqliteFiles(folder), "batches": SqliteBatches(folder)},
    ) as served:
        yield served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    entry = Entry("authenticator", "odd", "x:Y", "odd_plugin", "odd", "1.0")
    used = InUse(ByName(ByName.Options()), ComponentCalls(entry))
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path),
        api_key_file=str(keys),
        authenticators="odd",
        authenticator_objects=Authenticators([used]),
    ) as served:
        yield served


def key_of(name: str) -> dict[str, str]:
    token = name if ":" in name else f"{name}-0123456789abcdef"
    return {"authorization": f"Bearer {token}"}


def complete(served: Served, name: str, prompt: Any = "Hello", **fields: Any) -> httpx.Response:
    body = {"model": SERVED_NAME, "prompt": prompt, **fields}
    return served.post("/v1/completions", body, headers=key_of(name))


@pytest.mark.parametrize("name", ["once", "odd:eve:1"])
def test_a_request_beyond_the_rate_is_a_429(served: Served, name: str) -> None:
    assert complete(served, name).status_code == 200
    refused = complete(served, name)
    assert refused.status_code == 429
    assert 50 < int(refused.headers["retry-after"]) <= 60
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    tenant = name.rpartition(":")[0].replace(":", "/") or name
    assert f"{tenant!r} has used its 1 requests per minute; try again in " in error["message"]
    assert complete(served, "free").status_code == 200
    assert complete(served, "odd:bob:").status_code == 200


def test_replies_say_what_is_left(served: Served) -> None:
    headers = complete(served, "fast").headers
    assert headers["x-ratelimit-limit-requests"] == "600"
    assert headers["x-ratelimit-remaining-requests"] == "599"
    assert headers["x-ratelimit-reset-requests"].endswith("ms")
    assert "x-ratelimit-limit-tokens" not in headers


def test_a_refusal_says_what_is_left(served: Served) -> None:
    complete(served, "wordy", "x" * 60, max_tokens=60)
    refused = complete(served, "wordy", "x")
    assert refused.status_code == 429
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    assert refused.headers["x-ratelimit-reset-tokens"][:2] in ("1m", "2m")


def test_a_tenant_without_rates_gets_no_rate_headers(served: Served) -> None:
    for name in ("free", "narrow"):
        assert not [each for each in complete(served, name).headers if "ratelimit" in each]


def test_anthropic_s_client_gets_its_own_rate_headers(served: Served) -> None:
    body = {"model": SERVED_NAME, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    headers = served.post("/v1/messages", body, headers=key_of("fast")).headers
    assert headers["anthropic-ratelimit-requests-remaining"] == "599"
    full_at = datetime.datetime.fromisoformat(headers["anthropic-ratelimit-requests-reset"])
    assert abs(full_at.timestamp() - time.time()) < 5
    assert "x-ratelimit-limit-requests" not in headers


def test_a_refused_stream_never_starts(served: Served) -> None:
    assert complete(served, "once", stream=True).status_code == 200
    assert complete(served, "once", stream=True).status_code == 429


def test_anthropic_s_route_has_its_own_error_body(served: Served) -> None:
    body = {"model": SERVED_NAME, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    replies = [served.post("/v1/messages", body, headers=key_of("once")) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 429]
    assert replies[1].json()["error"]["type"] == "rate_limit_error"


def test_prompts_and_outputs_count(served: Served) -> None:
    assert complete(served, "wordy", "x" * 40, max_tokens=40).status_code == 200
    refused = complete(served, "wordy", "x")
    assert refused.status_code == 429
    assert "'wordy' has used its 60 tokens per minute" in refused.json()["error"]["message"]


def test_requests_that_the_engine_refuses_do_not_count(served: Served) -> None:
    assert complete(served, "once", [FULL]).status_code == 503
    assert complete(served, "once").status_code == 200


def test_further_choices_wait_for_the_rate(served: Served) -> None:
    """A request with more choices than the rate has left is slowed: it could never be answered otherwise."""
    complete(served, "odd:many:600", "Hi", n=598, max_tokens=1)
    reply = complete(served, "odd:many:600", "Hi", n=6, max_tokens=2)
    assert len(reply.json()["choices"]) == 6


def test_limits_at_once_go_to_the_engine(served: Served) -> None:
    complete(served, "narrow")
    complete(served, "free")
    narrow, free = served.engine.requests[-2:]
    assert (narrow.tenant_max_requests, narrow.tenant_max_queued) == (3, 2)
    assert (free.tenant_max_requests, free.tenant_max_queued) == (None, None)


def start_batch(http: httpx.Client, lines: int) -> str:
    line = {"method": "POST", "url": "/v1/completions", "body": {"model": SERVED_NAME, "prompt": "Hi"}}
    content = "".join(json.dumps({"custom_id": f"{i}", **line}) + "\n" for i in range(lines))
    file = http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("b.jsonl", content)}).json()
    body = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch_id: str = http.post("/v1/batches", json=body).json()["id"]
    return batch_id


def client_of(served: Served, name: str) -> httpx.Client:
    return httpx.Client(base_url=served.url, headers=key_of(name), timeout=30)


def test_a_batch_is_slowed_and_not_failed(served: Served) -> None:
    """Its lines take what live requests leave: half of the 600, then 10 a second."""
    with client_of(served, "fast") as http:
        begun = time.monotonic()
        batch = start_batch(http, 305)
        wait_until(lambda: http.get(f"/v1/batches/{batch}").json()["status"] == "completed")
        counts = http.get(f"/v1/batches/{batch}").json()["request_counts"]
    assert counts == {"total": 305, "completed": 305, "failed": 0}
    assert time.monotonic() - begun > 0.4
    assert complete(served, "fast").status_code == 200


def test_a_limited_tenant_holds_no_one_up(served: Served) -> None:
    """Neither its batch nor its background responses keep the places of those of others."""
    background = {"model": SERVED_NAME, "input": "Hi", "background": True}
    with client_of(served, "once") as slow, client_of(served, "free") as free:
        stuck = start_batch(slow, 200)
        wait_until(lambda: slow.get(f"/v1/batches/{stuck}").json()["status"] == "in_progress")
        for _ in range(100):
            slow.post("/v1/responses", json=background)
        batch = start_batch(free, 20)
        response = free.post("/v1/responses", json=background).json()["id"]
        wait_until(lambda: free.get(f"/v1/responses/{response}").json()["status"] == "completed")
        wait_until(lambda: free.get(f"/v1/batches/{batch}").json()["status"] == "completed")
        assert slow.get(f"/v1/batches/{stuck}").json()["status"] == "in_progress"


def test_a_batch_keeps_its_limits_after_a_restart(tmp_path: Path) -> None:
    """Also if no request of its tenant has told the new server what the authenticator says of it."""
    with serving_stored(tmp_path, EchoEngine()) as served, client_of(served, "odd:eve:1") as http:
        batch = start_batch(http, 20)
        wait_until(lambda: http.get(f"/v1/batches/{batch}").json()["request_counts"]["completed"])
    engine = EchoEngine()
    with serving_stored(tmp_path, engine):
        wait_until(lambda: len(engine.requests) > 0)
        time.sleep(0.3)
        assert len(engine.requests) == 1


def test_a_background_response_waits_for_the_rate(served: Served) -> None:
    body = {"model": SERVED_NAME, "input": "Hi", "background": True}
    with httpx.Client(base_url=f"{served.url}/v1/responses", headers=key_of("once")) as http:
        first, second = (http.post("", json=body).json()["id"] for _ in range(2))
        wait_until(lambda: http.get(first).json()["status"] == "completed")
        time.sleep(0.2)
        assert http.get(second).json()["status"] == "queued"
    assert len(served.engine.requests) == 1
