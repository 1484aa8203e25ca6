"""What a request held is freed with its reply."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from llmfw.api.routes import respond
from llmfw.api.routes.respond import while_connected


class Body:
    """Stands for a large body; unlike bytes it has weak references."""


async def never() -> Any:
    await asyncio.Event().wait()


async def answer(body: Body) -> None:
    raise ValueError(f"{body} is refused")


async def refuse() -> weakref.ref[Body]:
    body = Body()
    with pytest.raises(ValueError, match="is refused"):
        await while_connected(never, answer(body))
    return weakref.ref(body)


def test_a_refused_body_needs_no_garbage_collector() -> None:
    gc.disable()
    try:
        assert asyncio.run(refuse())() is None
    finally:
        gc.enable()


async def refuse_a_start(*, streams: bool) -> weakref.ref[Body]:
    body = Body()
    with pytest.raises(ValueError, match="is refused"):
        await respond.answer(never, answer(body), reply=unused, stream=unused, streams=streams)
    return weakref.ref(body)


def unused(started: None) -> Any:
    raise AssertionError("the generation has not started")


@pytest.mark.parametrize("streams", [True, False])
def test_a_refused_start_frees_its_body(streams: bool) -> None:
    gc.disable()
    try:
        assert asyncio.run(refuse_a_start(streams=streams))() is None
    finally:
        gc.enable()
