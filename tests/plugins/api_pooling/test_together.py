"""Parts of one request share the places of its tenant among themselves."""

from __future__ import annotations

import asyncio

import pytest

from llmfw.core.base.errors import RateLimitError, TenantLimitError
from llmfw.plugins.api_pooling.together import Together


class Tenant:
    """Has a number of places, of which others hold some."""

    def __init__(self, places: int, held_by_others: int = 0) -> None:
        self.places, self.running = places, held_by_others

    async def work(self) -> int:
        if self.running >= self.places:
            raise TenantLimitError("no place")
        self.running += 1
        await asyncio.sleep(0.001)
        self.running -= 1
        return 1


async def run(tenant: Tenant, num_parts: int, most: int = 16) -> int:
    together = Together(most)
    async with asyncio.timeout(5):
        return sum(await asyncio.gather(*(together.run(tenant.work) for _ in range(num_parts))))


@pytest.mark.parametrize("places", [1, 2, 7, 100])
async def test_all_parts_run_whatever_the_places(places: int) -> None:
    assert await run(Tenant(places), 40) == 40


async def test_places_of_other_requests_are_not_waited_for() -> None:
    with pytest.raises(TenantLimitError):
        await run(Tenant(2, held_by_others=2), 5)


async def test_rates_are_not_waited_for() -> None:
    async def refused() -> int:
        raise RateLimitError("used up")

    together = Together(2)
    with pytest.raises(RateLimitError):
        await asyncio.gather(together.run(refused), together.run(Tenant(1).work))


async def test_no_more_parts_run_than_allowed() -> None:
    assert await run(Tenant(3), 20, most=3) == 20
    with pytest.raises(TenantLimitError):
        await Together(1).run(Tenant(0).work)
