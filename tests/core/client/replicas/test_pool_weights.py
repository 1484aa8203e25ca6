"""Engines of a pool have the same weights at any time, whichever of them dies while others are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from llmfw.core.base.control import Command, GetMemory
from llmfw.core.base.errors import EngineDeadError, EngineError, ModelError
from llmfw.core.base.weights_command import LoadWeights
from llmfw.core.client.replicas.pool import EnginePool
from llmfw.core.client.restarts import RestartPolicy
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.weights_swap import ServedWeights, WeightsSwap

from ..test_weights_swap import EOS, Life, asked, until

Hook = Callable[["Serving", int, str], Awaitable[None]]


class HookedLife(Life):
    """Calls a hook before it starts, and once it is asked for its memory."""

    def __init__(self, serving: Serving, index: int, path: str) -> None:
        super().__init__(path)
        self.serving, self.index = serving, index

    async def start(self) -> None:
        await self.serving.before_start(self.serving, self.index, self.path)
        await super().start()

    async def control(self, command: Command) -> Any:
        if isinstance(command, GetMemory):
            await self.serving.at_memory(self.serving, self.index, self.path)
        return await super().control(command)


async def nothing(serving: Serving, index: int, path: str) -> None:
    """Do nothing."""


class Serving:
    """A pool whose engines serve the checkpoint "a" at first, and hooks for their lives."""

    def __init__(self, count: int, before_start: Hook = nothing, at_memory: Hook = nothing) -> None:
        self.before_start, self.at_memory = before_start, at_memory
        self.lives: list[list[HookedLife]] = [[] for _ in range(count)]
        self.clients = [self._client(index) for index in range(count)]
        self.pool = EnginePool(self.clients, served=ServedWeights("a"))

    def _client(self, index: int) -> SupervisedEngineClient:
        def life_of(path: str) -> Any:
            self.lives[index].append(HookedLife(self, index, path))
            return self.lives[index][-1]

        swap = WeightsSwap(life_of, "a")
        return SupervisedEngineClient(swap.new_life, RestartPolicy(max_per_hour=2), weights=swap)

    @property
    def served(self) -> list[str]:
        """What each engine serves; "": it has failed for good."""
        return [
            lives[-1].path if client.failure is None else ""
            for lives, client in zip(self.lives, self.clients, strict=True)
        ]

    async def refuse(self, path: str = "b", match: str = "") -> None:
        with pytest.raises(EngineError, match=match):
            await asyncio.wait_for(self.pool.control(LoadWeights(path, 5)), 10)

    async def __aenter__(self) -> Self:
        await self.pool.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.pool.close()


async def test_an_engine_that_dies_goes_back_too() -> None:
    """Engine 0 has the new weights, and dies while engine 1 refuses them; its restart must not load them again."""

    async def hook(serving: Serving, index: int, path: str) -> None:
        if index == 0 and path == "b" and len(serving.lives[0]) > 2:
            await asyncio.sleep(0.1)  # the restart is not over when engine 1 has failed
        if (index, path) == (1, "b"):
            serving.lives[0][-1].die()
            raise ModelError("the weights are damaged")

    async with Serving(3, before_start=hook) as serving:
        await serving.refuse(match="damaged")
        assert serving.served == ["a"] * 3
        events = [event async for event in serving.pool.generate(asked("a", 1))]
        assert [token for event in events for token in event.token_ids] == [1, EOS]


async def test_a_death_right_after_the_load() -> None:
    """Engine 1 dies with the new weights before it answers."""

    async def hook(serving: Serving, index: int, path: str) -> None:
        if (index, path) == (1, "b") and len(serving.lives[1]) == 2:
            serving.lives[1][-1].die()
            raise EngineDeadError("the engine process was killed")

    async with Serving(2, at_memory=hook) as serving:
        await serving.refuse(match="killed")
        assert serving.served == ["a"] * 2


async def test_engines_that_cannot_go_back_are_out() -> None:
    """The folder of the weights before is gone: engine 0 must not go on with the new ones."""

    async def hook(serving: Serving, index: int, path: str) -> None:
        if (index, path) == (1, "b") or (path == "a" and len(serving.lives[index]) > 1 and index == 0):
            raise ModelError("the folder is gone")

    async with Serving(2, before_start=hook) as serving:
        await serving.refuse(match="gone")
        assert serving.served == ["", "a"]
        assert serving.pool.info.weight_version == "a"
        assert serving.pool.failure is None


async def test_weights_change_beside_a_failed_engine() -> None:
    async def hook(serving: Serving, index: int, path: str) -> None:
        if index == 0 and len(serving.lives[0]) > 1:
            raise ModelError("no memory")

    async with Serving(2, before_start=hook) as serving:
        serving.lives[0][-1].die()
        await until(lambda: serving.served[0] == "")
        await serving.pool.control(LoadWeights("b", 5))
        assert serving.served == ["", "b"]
        assert serving.pool.info.weight_version == "b"
