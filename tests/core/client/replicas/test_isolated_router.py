"""A faulty router fails no request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.client.replicas.isolated_router import IsolatedRouter, build_router
from llmfw.core.client.whole_request import whole_request
from llmfw.core.interfaces.router import ReplicaView, RoutedRequest, Router
from llmfw.core.plugin.plugins import load_plugins

from ....doubles.echo_engine import EOS, WAIT
from ....doubles.mortal_life import MortalPool
from .test_pool import request, run, until

REQUEST = RoutedRequest(10)
BUSY, IDLE = ReplicaView(0, queued_tokens=9), ReplicaView(1)


class Answering(Router):
    """Answers what a test says; calls it if it is an exception's class."""

    def __init__(self, answer: Any) -> None:
        super().__init__(self.Options())
        self.answer = answer
        self.num_calls = 0

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        self.num_calls += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("answer", [None, 1, ReplicaView(7), ReplicaView(1), [], ZeroDivisionError("oh")])
def test_a_wrong_answer_is_the_last(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A view of its own is no engine either, as it may have been kept from an earlier request."""
    router = Answering(answer)
    isolated = IsolatedRouter(router)
    for _ in range(3):
        assert isolated.choose(REQUEST, [BUSY, ReplicaView(1, last_chosen=3)]).index == 1
    assert router.num_calls == 1
    assert isolated.failure is not None
    assert caplog.text.count("no longer used") == 1


def test_a_good_answer_is_taken() -> None:
    isolated = IsolatedRouter(Answering(BUSY))
    assert isolated.choose(REQUEST, [BUSY, IDLE]) is BUSY
    assert isolated.failure is None


def test_the_only_engine_needs_no_router() -> None:
    router = Answering(None)
    assert IsolatedRouter(router).choose(REQUEST, [BUSY]) is BUSY
    assert router.num_calls == 0


def test_routers_are_found_by_name() -> None:
    registry = load_plugins().registry
    for name in ("prefix", "load", "round-robin", "session"):
        assert build_router(registry, name, {}).choose(REQUEST, [IDLE, ReplicaView(2)]).index in (1, 2)
    with pytest.raises(ConfigError, match="random"):
        build_router(registry, "random", {})
    with pytest.raises(ConfigError, match="weight"):
        build_router(registry, "load", {"router.weight": "1"})


async def test_the_pool_asks_its_router() -> None:
    class Last(Answering):
        def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
            self.answer = request
            return replicas[-1]

    router = Last(None)
    mortal = MortalPool(count=3, router=IsolatedRouter(router))
    await mortal.pool.start()
    wanted = request("a", 1, 2, tenant="ann", cache_salt="s", deferrable=True)
    assert await run(mortal, wanted) == [1, 2, EOS]
    assert router.answer == RoutedRequest(2, "ann", "s", True)
    assert mortal.num_requests() == [0, 0, 1]
    mortal.life(2).die()
    assert await run(mortal, request("b", 1)) == [1, EOS]
    assert mortal.num_requests() == [0, 1, 1]
    await mortal.pool.close()


async def test_a_crashing_router_loses_no_request() -> None:
    mortal = MortalPool(router=IsolatedRouter(Answering(KeyError("oh"))))
    await mortal.pool.start()
    for i in range(4):
        assert await run(mortal, request(f"r{i}", 1)) == [1, EOS]
    assert mortal.num_requests() == [2, 2]
    await mortal.pool.close()


async def test_choices_of_a_prompt_stay_together() -> None:
    """Also with a router that knows no prompts; another prompt of the same client's request may go elsewhere."""
    mortal = MortalPool()
    await mortal.pool.start()
    first, second = request("x", WAIT, 1), request("y", WAIT, 2)
    with whole_request():
        tasks = [
            asyncio.create_task(run(mortal, msgspec.structs.replace(each, id=f"{each.id}{i}")))
            for i in range(3)
            for each in (first, second)
        ]
        await until(lambda: sum(mortal.num_requests()) == 6)
    for index in range(2):
        prompts = [each.prompt for each in mortal.engine(index).requests]
        assert prompts == [prompts[0]] * 3
    assert not mortal.pool._routing._companions._found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await mortal.pool.close()
