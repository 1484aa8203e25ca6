"""What routers learn of engines' caches, and what they make of it."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from llmfw.core.base.engine_info import EngineReport
from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.core.client.whole_request import open_whole_request, whole_request
from llmfw.core.interfaces.router import ReplicaView, RoutedRequest, Router
from llmfw.core.schedule.cache.prefix_hash import block_hashes
from llmfw.plugins.routers.prefix import Prefix

from ....doubles.echo_engine import EOS, WAIT
from ....doubles.mortal_life import MortalPool
from .test_pool import request, run, until

BLOCK = 16
PROMPT = [*range(100)]


class Seeing(Router):
    """Chooses as `prefix`, and keeps what it saw last."""

    needs_matches = True

    def __init__(self) -> None:
        super().__init__(self.Options())
        self.seen: Sequence[ReplicaView] = ()

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        self.seen = replicas
        return Prefix(self.options).choose(request, replicas)


@pytest.fixture
def router() -> Seeing:
    return Seeing()


@pytest.fixture
async def mortal(router: Seeing) -> AsyncIterator[MortalPool]:
    mortal = MortalPool(router=IsolatedRouter(router))
    await mortal.pool.start()
    for index in range(2):
        mortal.life(index).mirror.take(EngineReport(1, is_whole=True, block=BLOCK, tokens_per_s=1000.0))
    yield mortal
    await mortal.pool.close()


def cache(mortal: MortalPool, index: int, tokens: list[int], salt: str = "") -> None:
    """Have an engine report a prefix."""
    mirror = mortal.life(index).mirror
    added = array("Q", block_hashes(np.array(tokens, np.int32), salt, BLOCK)).tobytes()
    mirror.take(EngineReport(mirror._number + 1, block=BLOCK, added=added, tokens_per_s=1000.0))


def matches(router: Seeing) -> list[int]:
    return [view.match_tokens for view in router.seen]


async def test_matches_are_those_of_the_reports(mortal: MortalPool, router: Seeing) -> None:
    cache(mortal, 1, PROMPT[:64])
    assert await run(mortal, request("a", *PROMPT)) == [*PROMPT, EOS]
    assert matches(router) == [0, 64]
    assert [view.tokens_per_s for view in router.seen] == [1000.0, 1000.0]
    assert mortal.num_requests() == [0, 1]


async def test_tenants_do_not_see_others_prefixes(mortal: MortalPool, router: Seeing) -> None:
    cache(mortal, 1, PROMPT, "ann")
    await run(mortal, request("a", *PROMPT, cache_salt="bob"))
    assert matches(router) == [0, 0]
    await run(mortal, request("b", *PROMPT, cache_salt="ann"))
    assert matches(router) == [0, 96]


async def test_the_last_token_is_always_computed(mortal: MortalPool, router: Seeing) -> None:
    cache(mortal, 0, PROMPT[:32])
    await run(mortal, request("a", *PROMPT[:32]))
    assert matches(router) == [31, 0]


async def test_prompts_for_logprobs_match_nothing(mortal: MortalPool, router: Seeing) -> None:
    """An engine computes them anew."""
    cache(mortal, 0, PROMPT)
    await run(mortal, request("a", *PROMPT, prompt_logprobs=0))
    assert matches(router) == [0, 0]


async def test_prompts_being_computed_match_too(mortal: MortalPool, router: Seeing) -> None:
    """Requests that come at once with a common prefix stay together, until the first token, when the cache reports it."""
    first = asyncio.create_task(run(mortal, request("a", *PROMPT, WAIT)))
    await until(lambda: sum(mortal.num_requests()) == 1)
    home = mortal.num_requests().index(1)
    second = asyncio.create_task(run(mortal, request("b", *PROMPT, WAIT, WAIT)))
    await until(lambda: sum(mortal.num_requests()) == 2)
    assert mortal.num_requests()[home] == 2
    assert sorted(matches(router)) == [0, 96]
    assert router.seen[home].queued_tokens == 101
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    load = mortal.pool._replicas[home].load
    assert (load.queued_tokens, len(load.awaited)) == (0, 0)
    await run(mortal, request("c", *PROMPT))
    assert matches(router) == [0, 0]


async def test_a_restarted_engine_has_nothing_cached(mortal: MortalPool, router: Seeing) -> None:
    cache(mortal, 1, PROMPT)
    mortal.life(1).die()
    await until(lambda: mortal.pool.replicas[1].outage is None)
    await run(mortal, request("a", *PROMPT))
    assert matches(router) == [0, 0]
    assert router.seen[1].tokens_per_s == 0.0


async def test_invalid_tokens_reach_the_engine(mortal: MortalPool) -> None:
    """It refuses them by name; routing does not fail before."""
    wanted = request("a", *([2**40] * 20))
    assert await run(mortal, wanted) == [*([2**40] * 20), EOS]


async def test_estimates_stand_next_to_what_came_true(mortal: MortalPool) -> None:
    """Of live requests; the longest of a client's request is that of its reply."""
    cache(mortal, 1, PROMPT[:64])
    with whole_request():
        await run(mortal, request("a", *PROMPT))
        await run(mortal, request("b", *PROMPT[:10]))
        whole = open_whole_request()
        assert whole is not None
        assert whole.estimated_s == pytest.approx(0.036)
    await run(mortal, request("c", *PROMPT, deferrable=True))
    states = mortal.pool.replicas
    assert all(state.estimated and state.waited for state in states)
    counts = [sum(state.estimated.counts) for state in states if state.estimated]
    assert sum(counts) == 2
    assert [sum(state.waited.counts) for state in states if state.waited] == counts
    assert sum(state.estimated.seconds for state in states if state.estimated) == pytest.approx(0.046)
    assert all(0 < state.waited.seconds < 10 for state in states if state.waited and sum(state.waited.counts))


async def test_unmeasured_engines_have_no_estimate(mortal: MortalPool) -> None:
    for index in range(2):
        mortal.life(index).mirror.tokens_per_s = 0.0
    with whole_request():
        await run(mortal, request("a", *PROMPT))
        whole = open_whole_request()
        assert whole is not None
        assert whole.estimated_s is None
    assert [sum(state.estimated.counts) for state in mortal.pool.replicas if state.estimated] == [0, 0]
