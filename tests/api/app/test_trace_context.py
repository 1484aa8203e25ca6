"""The client's W3C trace context reaches observers, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llmfw.api.app.trace_context import TraceContext
from llmfw.core.client.trace_context import traceparent

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def seen(*values: str) -> str:
    """Return what a task of a request with these headers sees."""
    found = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def work() -> None:
            found.append(traceparent.get())

        await asyncio.create_task(work())

    headers = [(b"traceparent", value.encode()) for value in values]
    await TraceContext(app)({"type": "http", "headers": headers}, None, None)  # type: ignore[arg-type, typeddict-item]
    assert traceparent.get() == ""
    return found[0]


async def test_a_well_formed_context_is_passed_on() -> None:
    assert await seen(GOOD) == GOOD


@pytest.mark.parametrize(
    "values",
    [
        (),
        (GOOD, GOOD),
        (GOOD.upper(),),
        (GOOD + "\n",),
        (GOOD[:-1],),
        ("ff" + GOOD[2:],),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01",),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",),
        ("x" * 10_000,),
    ],
)
async def test_others_are_ignored(values: tuple[str, ...]) -> None:
    assert await seen(*values) == ""
