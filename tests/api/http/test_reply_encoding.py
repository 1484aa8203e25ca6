"""Large replies are encoded choice by choice, with the same bytes as at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from llmfw.api.http.reply_encoding import SLICE_BYTES, encode_reply


class Reply(msgspec.Struct, omit_defaults=True):
    """A reply with choices."""

    id: str
    choices: list[dict[str, str]]
    usage: int | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize("num", [0, 1, 3])
async def test_the_bytes_are_those_of_one_piece(num: int) -> None:
    for reply in (Reply("x", [{"text": "é"}] * num), [Reply("x", [])] * num):
        assert await encode_reply(reply) == msgspec.json.encode(reply)


async def test_others_run_between_large_choices() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    await encode_reply(Reply("x", [{"text": "a" * SLICE_BYTES}] * 8))
    running.cancel()
    assert turns >= 7
