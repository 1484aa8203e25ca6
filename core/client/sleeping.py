"""The sleep of an engine. The engine's process ends on purpose, and starts again when the engine is woken.

A process that is replaced because of other weights ends in the same way; but requests wait, and are not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from llmfw.core.base.control import Answer, GetMemory, Sleep
from llmfw.core.base.errors import ConflictError, EngineDeadError, NotReadyError
from llmfw.core.base.request import EmbedRequest, Request
from llmfw.core.base.weights_command import OTHER_WEIGHTS, LoadWeights

from .client import EngineClient
from .engine_wait import EngineWait
from .quarantine import Attempt
from .whole_request import WholeRequest, open_whole_request

LOADING = "the engine loads other weights"
"""Why new requests wait meanwhile."""
RETRY_S = 30.0
"""Seconds after which a refused client should retry. The time of the wake-up is unknown."""


class EngineSleep:
    """Whether an engine sleeps, or is about to.

    Attributes:
        is_asleep: whether the process has ended, or is ending, because of the sleep.
        changing: lock that a command holds while it starts or ends a sleep, or replaces the weights.
        num_loads: number of times that the weights were replaced, or that this was tried.
    """

    def __init__(self) -> None:
        self.is_asleep = False
        self.changing = asyncio.Lock()
        self.num_loads = 0
        self._is_begun = False
        self._hold = EngineWait(lambda: LOADING)  # over, unless it is begun
        self._hold.end()
        self._aborted: set[WholeRequest] = set()
        self._has_ended = asyncio.Event()  # set at the end of each request
        self._awake = asyncio.Event()
        self._awake.set()
        self._begun: set[WholeRequest] = set()  # open client requests, at least partly sent

    @property
    def refusal(self) -> NotReadyError | None:
        """Error for new requests; None while the engine is awake, or requests wait for other weights."""
        if not self._is_begun or not self._hold.is_over:
            return None
        return NotReadyError(
            "the engine sleeps, or is about to; it takes requests again once an administrator wakes it",
            code="asleep",
            retry_after_s=RETRY_S,
        )

    @property
    def refusal_of_part(self) -> NotReadyError | None:
        """Error for the caller's next request to the engine: `refusal`, or None in a begun client request."""
        return None if open_whole_request() in self._begun else self.refusal

    def note_start(self) -> WholeRequest | None:
        """Note that a live request is sent to the engine.

        The engine does not fall asleep before the whole client request has ended.

        Returns:
            The whole client request; None if there is none.
        """
        whole = open_whole_request()
        if whole is not None and whole not in self._begun:
            self._begun.add(whole)
            whole.at_end(lambda: self._end(whole))
        return whole

    def note_end(self) -> None:
        """Note that a request has ended."""
        self._has_ended.set()

    def num_live(self, wholes: Iterable[WholeRequest | None]) -> int:
        """Return the number of running client requests.

        Args:
            wholes: for each live request in the engine, the whole client request that contains it; None if
                there is none.
        """
        return len(self._begun) + sum(whole not in self._begun for whole in wholes)

    async def pass_hold(self, attempt: Attempt, request: Request | EmbedRequest, begun_at: float) -> None:
        """Make a new request wait while the weights are being replaced; those that have begun may end before that.

        Args:
            begun_at: time of the request's arrival, by the clock of `time.monotonic`.

        Raises:
            EngineDeadError: the client request that contains it was ended because of other weights.
            Other exceptions: as in `EngineWait.wait`.
        """
        whole = open_whole_request()
        if whole in self._aborted:
            raise EngineDeadError(OTHER_WEIGHTS)
        # Once processes are replaced, no request may end before that: its parts would be of different weights.
        has_begun = whole in self._begun or (attempt.was_sent and not attempt.deferrable)
        if not self._hold.is_over and (self.is_asleep or not has_begun):
            await self._hold.wait(attempt, request, begun_at)

    async def enter(
        self, life: EngineClient, num_live: Callable[[], int], command: Sleep | LoadWeights
    ) -> Answer:
        """Accept no new requests, and wait until no live request runs. The caller must then end the process.

        Args:
            life: client of the process.
            num_live: function that returns the number of running live requests.
            command: the command, with the longest time to wait.

        Returns:
            The memory of the process.

        Raises:
            ConflictError: requests still run; the engine stays awake.
            EngineDeadError: the process has ended by itself.
        """
        self._is_begun = True
        if isinstance(command, LoadWeights):
            self._hold.begin()
        try:
            if isinstance(command, Sleep) or not command.aborts:
                await self._wait_idle(num_live, command.timeout_s)
            memory = await life.control(GetMemory())
            if life.failure is not None:
                raise EngineDeadError(life.failure)
        except BaseException:
            self.end()
            raise
        self.is_asleep = True
        self._awake.clear()
        if isinstance(command, LoadWeights):
            self.num_loads += 1
            self._aborted |= self._begun
        return memory

    def end(self) -> None:
        """End the sleep: allow the process to start, and accept new requests."""
        self._is_begun = self.is_asleep = False
        self._hold.end()
        self._awake.set()

    async def wait_awake(self) -> None:
        """Wait until the sleep has ended."""
        await self._awake.wait()

    def _end(self, whole: WholeRequest) -> None:
        self._begun.discard(whole)
        self._aborted.discard(whole)
        self._has_ended.set()

    async def _wait_idle(self, num_live: Callable[[], int], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while num_live():
                    self._has_ended.clear()
                    await self._has_ended.wait()
        except TimeoutError:
            raise ConflictError(
                f"{num_live()} requests still run after {timeout_s:g} s, and the engine stays awake; try again later",
                code="requests_running",
                passing=True,
            ) from None
