"""A plugin's route whose stream does not end by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from litestar import get
from litestar.response import Stream


async def _forever() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"more"
        await asyncio.Event().wait()


@get("/endless")
async def endless() -> Stream:
    return Stream(_forever())
