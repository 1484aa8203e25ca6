"""What a client gets from a server with a drafter: the same replies, streams and counts of tokens, and figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving

WORDS = (
    "Repeat: mirror has 154 flispion not lamp is drone horse grey 523 chemist my bottle 498 librarian a cloud"
)
BODIES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "seed": 5},
    "stop string": {"temperature": 0, "stop": ["grey 5"]},
    "stop string after some tokens": {"temperature": 0, "stop": ["not", "chemist"], "min_tokens": 20},
    "most tokens": {"temperature": 0, "max_tokens": 17},
    "log probabilities": {"temperature": 0, "logprobs": True, "top_logprobs": 2, "max_tokens": 20},
    "penalty": {"temperature": 0, "presence_penalty": 0.3},
    "choices": {"n": 3, "seed": 2, "max_tokens": 30},
}


@pytest.fixture(scope="module")
def drafting() -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    tokenizer = load_tokenizer(path)
    config = EngineConfig(model=path, dtype="float32", max_total_tokens=16384, drafter="prompt-lookup")
    with serving(
        build_generation_engine(config, registry), tokenizer, tokenizer.chat_template, name="demo"
    ) as served:
        yield served


def answer(server: Served, body: dict[str, Any]) -> dict[str, Any]:
    body = {"max_tokens": 80, "messages": [{"role": "user", "content": WORDS}]} | body
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.mark.parametrize("kind", BODIES)
def test_drafts_do_not_change_replies(demo_server: Served, drafting: Served, kind: str) -> None:
    plain, drafted = (answer(server, BODIES[kind]) for server in (demo_server, drafting))
    assert drafted["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
    assert len(plain["choices"]) == len(drafted["choices"])
    for found, expected in zip(drafted["choices"], plain["choices"], strict=True):
        assert found["message"] == expected["message"]
        assert found["finish_reason"] == expected["finish_reason"]
        if expected["logprobs"] is not None:
            tokens = [
                [each["token"] for each in choice["logprobs"]["content"]] for choice in (found, expected)
            ]
            assert tokens[0] == tokens[1]


def test_repetitive_replies_are_mostly_drafted(drafting: Served) -> None:
    """The metrics count the accepted tokens."""
    before = drafting.engine.stats()
    reply = answer(drafting, {"temperature": 0})
    after = drafting.engine.stats()
    num_accepted = after.num_accepted_tokens - before.num_accepted_tokens
    assert num_accepted > reply["usage"]["completion_tokens"] / 2
    lines = httpx.get(f"{drafting.url}/metrics").text.splitlines()
    assert f"llmfw_drafted_tokens_total {float(after.num_drafted_tokens)}" in lines
    assert f"llmfw_accepted_tokens_total {float(after.num_accepted_tokens)}" in lines
    assert "# TYPE llmfw_accepted_tokens_total counter" in lines
