"""The event loop that commands run on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def run_to_end(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine on a new event loop: uvloop's on POSIX systems, else asyncio's."""
    if os.name == "posix":
        import uvloop

        return uvloop.run(work)
    return asyncio.run(work)
