"""What an administrator does to the real engine over HTTP, while clients ask."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving

SYSTEM = {"role": "system", "content": "You are a helpful assistant who answers in one short sentence."}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    """Return a server with the demo model and so little room that requests wait and are retracted."""
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    config = EngineConfig(
        model=path,
        dtype="float32",
        max_total_tokens=600,
        max_running_requests=8,
        chunked_prefill_size=64,
        schedule_conservativeness=0.05,
        max_pinned_fraction=0.5,
        trace_requests=100,
    )
    tokenizer = load_tokenizer(path)
    with serving(
        build_generation_engine(config, registry), tokenizer, tokenizer.chat_template, name="demo"
    ) as served:
        yield served


def chat(server: Served, *texts: str, **fields: Any) -> dict[str, Any]:
    """Return the reply to a conversation, of which every second message is the assistant's."""
    turns = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]
    body = {"messages": [SYSTEM, *turns], "temperature": 0, **fields}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def many(server: Served, count: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the replies to chats that are sent at once."""
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(chat, server, f"Count to {i}.", ignore_eos=True, **fields) for i in range(count)]
        return [each.result() for each in asked]


def entries_of(server: Served, reply: dict[str, Any]) -> list[dict[str, Any]]:
    found = httpx.get(f"{server.url}/admin/requests/{reply['id']}").json()
    [trace] = found["traces"]
    return list(trace["entries"])


def test_no_request_is_lost_when_the_policy_changes(server: Served) -> None:
    known = httpx.get(f"{server.url}/admin/policy").json()["known"]
    assert {"fcfs", "lpm"} <= set(known)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(many, server, 20, max_tokens=40)
        names = iter(known * 1000)
        while not running.done():
            reply = httpx.put(f"{server.url}/admin/policy", json={"name": next(names)}, timeout=60)
            assert reply.status_code == 200, reply.text
        replies = running.result()
    assert [reply["usage"]["completion_tokens"] for reply in replies] == [40] * 20


def test_chats_use_their_pinned_prefix(server: Served) -> None:
    body = {"messages": [SYSTEM], "ttl": "10m", "compute": True}
    pin = httpx.post(f"{server.url}/admin/cache/pins", json=body, timeout=60).json()
    assert pin["num_cached"] == pin["num_tokens"] > 10
    many(server, 12, max_tokens=60)  # more than the cache can hold
    assert httpx.get(f"{server.url}/admin/cache").json()["num_evicted"] > 0
    for texts in (["Hi"], ["Hi", "Hello.", "Who are you?"]):
        cached = chat(server, *texts, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= pin["num_tokens"]
    gone = httpx.delete(f"{server.url}/admin/cache/pins/{pin['id']}").json()
    assert gone["id"] == pin["id"]
    assert httpx.post(f"{server.url}/admin/cache/flush").json()["num_tokens"] == 0


def test_a_trace_shows_a_long_prompt_s_chunks(server: Served) -> None:
    httpx.post(f"{server.url}/admin/cache/flush")
    reply = chat(server, "word " * 200, max_tokens=2)
    found = {entry["kind"]: entry for entry in entries_of(server, reply)}
    assert found.keys() == {"arrived", "admitted", "computed", "ended"}
    computed, num_tokens = found["computed"], reply["usage"]["prompt_tokens"]
    assert computed["num_tokens"] == num_tokens
    assert computed["last_step"] - computed["first_step"] + 1 == -(-num_tokens // 64)
    assert found["ended"]["reason"] == "length"


def test_a_trace_explains_waits_and_retractions(server: Served) -> None:
    entries = [entry for reply in many(server, 12, max_tokens=120) for entry in entries_of(server, reply)]
    reasons = {entry.get("reason") for entry in entries if entry["kind"] == "retracted"}
    assert reasons == {"the pool is full"}
    waits = [entry for entry in entries if entry["kind"] == "waits"]
    assert any(entry["num_ahead"] > 0 for entry in waits if "num_ahead" in entry)
    assert all(entry["reason"] for entry in waits)
