"""Long texts: refused by their length, processed outside the event loop, dropped when their client leaves."""

from __future__ import annotations

import asyncio
import threading

import pytest

from llmfw.api.text.encoder import PromptEncoder
from llmfw.api.text.threads import MAX_SHORT, TextThreads
from llmfw.core.base.errors import ContextLengthError, RequestError

from ..doubles.serving import Served

LIMIT = 1000


@pytest.fixture
def encoder(demo) -> PromptEncoder:
    return PromptEncoder(demo, lambda: LIMIT, TextThreads())


async def test_texts_are_encoded_like_the_tokenizer_does(encoder, demo):
    texts = ["Hello", "", "one two " * 2000, "x"]
    expected = [demo.encode(text) for text in texts]
    assert [await encoder.encode(text) for text in texts[:2]] == expected[:2]
    long = PromptEncoder(demo, lambda: 100_000, TextThreads())
    assert await long.encode_all(texts, "prompt") == expected
    assert await long.decode_all(expected, True) == [demo.decode(each) for each in expected]


@pytest.mark.parametrize("text", ["word " * 100_000, "1a" * 5000, "é" * 20_000])
async def test_a_too_long_text_is_not_encoded_whole(encoder, demo, monkeypatch, text):
    encoded = []
    encode = demo.encode
    monkeypatch.setattr(
        demo, "encode", lambda text, **options: encoded.append(len(text)) or encode(text, **options)
    )
    with pytest.raises(ContextLengthError, match="1000"):
        await encoder.encode(text)
    assert sum(encoded) <= 2**15


async def test_the_total_prompt_size_is_limited(encoder, monkeypatch):
    monkeypatch.setattr("llmfw.api.text.encoder.MAX_TOKENS", 1500)
    with pytest.raises(RequestError, match="1500 tokens in all"):
        await encoder.encode_all(["1a" * 300] * 2000, "prompt")


async def test_short_work_does_not_wait_for_long_work():
    threads, gate = TextThreads(), threading.Event()
    long = [asyncio.create_task(threads.run(MAX_SHORT + 1, gate.wait)) for _ in range(20)]
    assert await asyncio.wait_for(threads.run(1, str, 5), 5) == "5"
    begun = []
    last = asyncio.create_task(threads.run(MAX_SHORT + 1, begun.append, 1))
    await asyncio.sleep(0)
    last.cancel()
    await asyncio.gather(last, return_exceptions=True)
    gate.set()
    await asyncio.gather(*long)
    assert begun == []


def test_the_choices_total_size_is_limited(server: Served):
    bias = {str(i % 250): 1 for i in range(250)}
    body = {"prompt": "a", "n": 128, "stop": ["b" * 256] * 256 + [], "logit_bias": bias}
    reply = server.post("/v1/completions", {**body, "prompt": ["a"] * 32})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "n"


def test_the_number_of_messages_is_limited(server: Served):
    message = {"role": "user", "content": "a"}
    reply = server.post("/v1/chat/completions", {"messages": [message] * 10_001})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")
    parts = [{"type": "text", "text": "a"}] * 10_001
    reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages[0].content")


def test_a_too_long_chat_is_not_rendered(server: Served):
    """The template shows the last message alone."""
    messages = [{"role": "user", "content": "a" * 100_000}, {"role": "user", "content": "a"}]
    reply = server.post("/v1/chat/completions", {"messages": messages})
    assert reply.json()["error"]["code"] == "context_length_exceeded"


def test_tokens_beyond_the_context_are_not_decoded(server: Served):
    reply = server.post("/detokenize", {"tokens": [5] * 3000})
    assert reply.json()["error"]["code"] == "context_length_exceeded"
