"""A double of the client of an engine process: the echo engine in a thread, which a test can make die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.client.cache_mirror import CacheMirror
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.client.quarantine import Witnesses
from llmfw.core.client.replicas.pool import EnginePool
from llmfw.core.client.replicas.pool_members import Growth
from llmfw.core.client.restarts import RestartPolicy
from llmfw.core.client.supervisor import SupervisedEngineClient

from .echo_engine import EchoEngine


class MortalLife(InprocEngineClient):
    """Has the interface of `ProcessEngineClient`.

    Args:
        engine: the engine of this life.
        may_start: event before which the life does not start; None: it starts at once.

    Attributes:
        engine: the engine.
        mirror: as of `ProcessEngineClient`; the echo engine reports nothing.
    """

    pid = None

    def __init__(self, engine: EchoEngine, may_start: asyncio.Event | None = None) -> None:
        super().__init__(engine)  # type: ignore[arg-type]
        self.engine = engine
        self.mirror = CacheMirror(lambda: None)
        self.was_ended_from_outside = False
        self.is_quiet = False
        self._may_start = may_start
        self._dead = asyncio.Event()
        self._on_death: Callable[[], None] = lambda: None
        self._on_quiet: Callable[[], None] = lambda: None

    async def start(self) -> None:
        if self._may_start is not None:
            await self._may_start.wait()
        await super().start()

    def events(self, request: Request | EmbedRequest) -> AsyncGenerator[TokenEvent, None]:
        return self._streams.generate(request)

    def call_on_death(self, function: Callable[[], None]) -> None:
        self._on_death = function

    def call_on_quiet(self, function: Callable[[], None]) -> None:
        self._on_quiet = function

    def fall_quiet(self, *, is_quiet: bool) -> None:
        """Stop, or start again, to show signs of life, as the watchdog sees them."""
        self.is_quiet = is_quiet
        self._on_quiet()

    async def wait_dead(self) -> None:
        await self._dead.wait()

    def die(self, *, outside: bool = True) -> None:
        """End as if the process had been killed, or had crashed by itself."""
        self.was_ended_from_outside = outside
        self._fail("the engine process was killed" if outside else "the engine failed")

    def _fail(self, reason: str) -> None:
        super()._fail(reason)
        self._dead.set()
        self._on_death()


class MortalPool:
    """A pool over mortal lives.

    Args:
        count: number of replicas.
        delay: seconds that a step of an engine takes.
        may_restart: event before which no life after the first starts; None: they start at once.
        policy: limits of the restarts.
        most: maximum number of engines; None: none can be added.
        options: further arguments of `EnginePool`.

    Attributes:
        pool: the pool.
        lives: for each replica, its lives so far.
        witnesses: the requests at all engines.
    """

    def __init__(
        self,
        count: int = 2,
        delay: float = 0.0,
        may_restart: asyncio.Event | None = None,
        policy: RestartPolicy | None = None,
        most: int | None = None,
        **options: Any,
    ) -> None:
        self.lives: list[list[MortalLife]] = [[] for _ in range(most or count)]
        self.witnesses = Witnesses()
        self._delay = delay
        self._may_restart = may_restart
        self._policy = policy or RestartPolicy(max_per_hour=10_000)
        growth = None if most is None else Growth(self._new_client, most)
        self.pool = EnginePool([self._new_client(index) for index in range(count)], growth=growth, **options)

    def life(self, index: int) -> MortalLife:
        """Return the current life of a replica."""
        return self.lives[index][-1]

    def engine(self, index: int) -> EchoEngine:
        """Return the engine of the current life of a replica."""
        return self.life(index).engine

    def num_requests(self) -> list[int]:
        """Return how many requests the engines of each replica have accepted, in all lives."""
        return [sum(len(life.engine.requests) for life in lives) for lives in self.lives]

    def _new_client(self, index: int) -> SupervisedEngineClient:
        return SupervisedEngineClient(
            partial(self._new_life, index),  # type: ignore[arg-type]
            self._policy,
            witnesses=self.witnesses,
        )

    def _new_life(self, index: int) -> MortalLife:
        lives = self.lives[index]
        life = MortalLife(EchoEngine(delay=self._delay), self._may_restart if lives else None)
        lives.append(life)
        return life
