"""What runs for one client request."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from llmfw.api.text.generation import Generator
from llmfw.api.text.text_stream import TextStream
from llmfw.core.base.request import SamplingParams
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
