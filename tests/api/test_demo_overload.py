"""A real engine with one place and a queue of one: who runs, who is told to wait, who is sent away."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving

BODY = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(
        model=path, dtype="float32", max_total_tokens=4096, max_running_requests=1, max_queued_requests=1
    )
    tokenizer = load_tokenizer(path)
    with serving(
        build_generation_engine(config, registry), tokenizer, tokenizer.chat_template, name="demo"
    ) as served:
        yield served


def test_requests_run_wait_or_are_refused(small: Served) -> None:
    """Waiting requests receive their position."""
    url = f"{small.url}/v1/completions"
    with httpx.stream("POST", url, json=BODY, timeout=60) as first:
        running = first.iter_lines()  # kept: without a reader the stream would be closed
        assert next(running).startswith("data: ")
        with httpx.stream("POST", url, json={**BODY, "max_tokens": 2}, timeout=60) as second:
            lines = second.iter_lines()
            assert next(lines) == ": waiting, 0 ahead"
            refused = httpx.post(url, json=BODY, timeout=60)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            first.close()
            assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_timeout_ends_a_running_request(small: Served) -> None:
    reply = httpx.post(
        f"{small.url}/v1/completions", json={**BODY, "stream": False, "timeout": 0.2}, timeout=60
    )
    assert reply.status_code == 408
    assert "timeout of 0.2 s has passed after" in reply.json()["error"]["message"]
    assert small.post("/v1/completions", {**BODY, "stream": False, "max_tokens": 2}).status_code == 200
