"""What runs for one client request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from llmfw.api.text.engine_places import EnginePlaces
from llmfw.api.text.generation import Generator
from llmfw.api.text.slices import SLICE
from llmfw.api.text.text_stream import TextStream
from llmfw.core.base.errors import TenantLimitError
from llmfw.core.base.request import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprob
from llmfw.core.client.inproc import InprocEngineClient

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer


async def test_a_slow_reader_sees_each_choice_end(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    client = InprocEngineClient(EchoEngine())
    await client.start()
    generation = Generator(client, tokenizer, "echo").start(
        "x-", [tokenizer.encode("abc")], SamplingParams(), lambda _: TextStream(tokenizer.detokenizer()), n=2
    )
    seen = []
    async with contextlib.aclosing(generation.events()) as events:
        async for choice, deltas in events:
            await asyncio.sleep(0.02)
            seen.append((choice.index, "".join(d.text for d in deltas), choice.text.finish_reason))  # type: ignore[union-attr]
    await client.close()
    for index in range(2):
        assert [item[1:] for item in seen if item[0] == index] == [
            ("a", None),
            ("b", None),
            ("c", None),
            ("", "stop"),
        ]


class RefusesOnce(InprocEngineClient):
    """A client that refuses the second choice once, after the first one's first token."""

    refused = False

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        if request.id.endswith("-1") and not self.refused:
            self.refused = True
            await asyncio.sleep(0.01)
            raise TenantLimitError("at its limit", retry_after_s=0.05)
        for token in request.prompt:
            yield TokenEvent(request.id, [token])
            await asyncio.sleep(0.02)
        yield TokenEvent(request.id, [], FinishReason.STOP)


async def test_a_choice_put_off_keeps_the_order(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    client = RefusesOnce(EchoEngine())
    await client.start()
    generation = Generator(client, tokenizer, "echo", places=EnginePlaces(8)).start(
        "x-", [tokenizer.encode("abc")], SamplingParams(), lambda _: TextStream(tokenizer.detokenizer()), n=2
    )
    for choice in generation.choices:
        choice.request = msgspec.structs.replace(choice.request, tell_wait=True)
    seen = {0: "", 1: ""}
    async with contextlib.aclosing(generation.events()) as events:
        async for choice, deltas in events:
            seen[choice.index] += "".join(d.text for d in deltas)  # type: ignore[union-attr]
    await client.close()
    assert seen == {0: "abc", 1: "abc"}


class EventsAtOnce(InprocEngineClient):
    """A client whose engine has all events of a request ready."""

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        scored = TokenLogprob(-1.0, [*range(20)], [-1.0] * 20)
        for _ in range(request.sampling.max_tokens or 0):
            yield TokenEvent(request.id, [97], logprobs=[scored])
        yield TokenEvent(request.id, [], FinishReason.LENGTH)


async def test_others_run_between_events_of_choices(tmp_path: Path) -> None:
    tokenizer, turns = byte_tokenizer(tmp_path), 0
    client = EventsAtOnce(EchoEngine())
    await client.start()
    generation = Generator(client, tokenizer, "echo").start(
        "x-",
        [tokenizer.encode("abc")],
        SamplingParams(max_tokens=50),
        lambda _: TextStream(tokenizer.detokenizer()),
        n=8,
    )

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    await generation.finish()
    running.cancel()
    await client.close()
    assert turns >= 8 * 50 * 21 // SLICE
