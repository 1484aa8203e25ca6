"""What SGLang's clients and benchmarks ask of a server besides answers: its settings, its load, an empty cache."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

PROMPT = "The capital of France is Paris, and the capital of Spain is Madrid. " * 3
BOTH = pytest.mark.parametrize("method", ["GET", "POST"])


@pytest.fixture(scope="module")
def demo() -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=4096)
    engine = build_generation_engine(config, registry)
    with serving(engine, load_tokenizer(path), name="demo") as served:
        yield served


def get(server: Served, path: str) -> Any:
    reply = httpx.get(server.url + path, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()


def flush(server: Served, method: str, **options: Any) -> httpx.Response:
    return httpx.request(method, f"{server.url}/flush_cache", timeout=20, **options)


def cached_tokens(server: Served) -> int:
    usage = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1}).json()["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_a_server_says_its_settings_and_load(server: Served, path: str) -> None:
    info = get(server, path)
    assert info["version"] == version("llmfw-engine")
    assert (info["served_model_name"], info["is_embedding"], info["dtype"]) == (SERVED_NAME, False, "float32")
    assert (info["context_length"], info["max_total_num_tokens"]) == (512, 4096)
    [state] = info["internal_states"]
    assert (state["num_running_reqs"], state["num_waiting_reqs"]) == (0, 0)


@pytest.mark.parametrize("path", ["/server_info", "/get_model_info", "/model_info", "/v1/models"])
def test_a_server_tells_no_path_and_no_key(tmp_path: Path, path: str) -> None:
    engine = EchoEngine()
    engine.info.model = str(tmp_path)
    keys = {"api_key": "user-key-0123456789", "admin_api_key": "root-key-0123456789"}
    with serving(engine, byte_tokenizer(tmp_path), **keys) as served:
        headers = {"authorization": f"Bearer {keys['api_key']}"}
        reply = httpx.get(f"{served.url}{path}", headers=headers)
    if path != "/v1/models":
        assert reply.json()["model_path"] == reply.json()["tokenizer_path"] == SERVED_NAME
    assert str(tmp_path) not in reply.text
    assert "key-0123456789" not in reply.text


def test_both_names_describe_the_model(server: Served) -> None:
    assert get(server, "/model_info") == get(server, "/get_model_info")


@BOTH
def test_an_idle_server_empties_its_cache(demo: Served, method: str) -> None:
    cached_tokens(demo)
    assert cached_tokens(demo) > 0
    reply = flush(demo, method)
    assert (reply.status_code, reply.text) == (200, "Cache flushed; 0 pinned tokens are left.\n")
    assert cached_tokens(demo) == 0


@BOTH
def test_a_busy_server_keeps_its_cache(demo: Served, method: str) -> None:
    cached_tokens(demo)
    body = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "n": 8, "stream": True}
    with httpx.stream("POST", f"{demo.url}/v1/completions", json=body, timeout=60) as running:
        lines = running.iter_lines()
        assert next(lines).startswith("data: ")
        reply = flush(demo, method)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "requests_running")
        assert cached_tokens(demo) > 0


def test_no_page_in_a_browser_empties_the_cache(server: Served) -> None:
    assert flush(server, "GET", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert flush(server, "GET", headers={"sec-fetch-site": "none"}).status_code == 200
