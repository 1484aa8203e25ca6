"""The frames of the view Watch: the engine's figures and its last steps.

The engine is asked for a frame at most ten times a second, for all clients together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from llmfw.core import EngineClient, EngineStats, LLMFWError, RequestError, StepsView, ViewSteps

INTERVAL_S = 0.1
"""Shortest time between two requests to the engine, in seconds, for all readers together."""


class Frame(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The data that the page shows for one moment. A frame contains no text of any request.

    Attributes:
        at: time in seconds since the epoch.
        stats: the engine's figures.
        steps: the steps since the last frame, and the running and waiting requests; None if the engine has no
            steps.
        problem: reason why the engine did not answer; "" if the engine answered.
    """

    at: float
    stats: EngineStats | None = None
    steps: StepsView | None = None
    problem: str = ""


class Feed:
    """Asks the engine for frames, once for all readers, and gives each frame to all readers.

    Args:
        clock: monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._encoded = b""
        self._number = 0
        self._after = 0

    async def frames(self, client: EngineClient) -> AsyncGenerator[bytes, None]:
        """Yield encoded frames. A slow reader misses some frames.

        Args:
            client: client of the engine that acts for the caller, who is an administrator.
        """
        seen = 0
        while True:
            await self._refresh(client, seen)
            seen = self._number
            yield self._encoded
            await asyncio.sleep(max(0.0, self._asked_at + INTERVAL_S - self._clock()))

    async def _refresh(self, client: EngineClient, seen: int) -> None:
        """Ask for a new frame, unless another reader has done so within the interval."""
        async with self._asking:
            left = self._asked_at + INTERVAL_S - self._clock()
            if self._number != seen and left > 0:
                return
            if left > 0:
                await asyncio.sleep(left)
            self._encoded = msgspec.json.encode(await self._ask(client))
            self._number += 1
            self._asked_at = self._clock()

    async def _ask(self, client: EngineClient) -> Frame:
        frame = Frame(at=time.time())
        try:
            frame.stats = await client.stats()
            found = await client.control(ViewSteps(self._after))
        except RequestError:
            return frame  # an engine of embeddings has figures, but no steps
        except LLMFWError as error:
            frame.problem = str(error)
            return frame
        if isinstance(found, StepsView):
            frame.steps = found
            self._after = found.steps[-1].number if found.steps else self._after
        return frame
