"""Prepared images of all requests that run take a bounded memory, and tenants share it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest_asyncio

from llmfw.api.media.prepared import MAX_PREPARING, PreparedImages
from llmfw.core.base.media import MediaArray, MediaSpan

MOST = 1000


class Requests:
    """Requests that prepare images of 100 bytes, and hold them until they are ended."""

    def __init__(self) -> None:
        self.prepared = PreparedImages(MOST)
        self.held: list[tuple[str, MediaSpan]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, tenant: str, count: int, *, is_patient: bool = False) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._run(tenant, is_patient=is_patient)))

    async def _run(self, tenant: str, *, is_patient: bool) -> None:
        async with self.prepared.turn(tenant, is_patient=is_patient):
            await asyncio.sleep(0)
            array = MediaArray("|u1", (100,), bytes(100))
            span = MediaSpan(offset=0, length=1, key=bytes(32), token_id=1, tensors={"pixels": array})
            self.prepared.count(tenant, [span], is_patient=is_patient)
            self.held.append((tenant, span))

    async def settle(self) -> list[str]:
        """Return the tenants of the images that are held, once nothing moves any more."""
        for _ in range(200):
            await asyncio.sleep(0)
        return [tenant for tenant, _ in self.held]

    def end(self, count: int) -> None:
        del self.held[:count]
        gc.collect()


@pytest_asyncio.fixture
async def requests() -> AsyncIterator[Requests]:
    found = Requests()
    yield found
    for task in found.tasks:
        task.cancel()
    await asyncio.gather(*found.tasks, return_exceptions=True)


async def test_memory_of_prepared_images_is_bounded(requests: Requests) -> None:
    for tenant in "abcd":
        requests.start(tenant, 20)
    await requests.settle()
    assert MOST <= requests.prepared.used <= MOST + 100 * MAX_PREPARING
    for _ in range(30):
        requests.end(4)
        await requests.settle()
    assert all(task.done() for task in requests.tasks)
    assert requests.prepared.used == 0


async def test_one_tenant_gets_half(requests: Requests) -> None:
    requests.start("many", 50)
    held = await requests.settle()
    assert 5 <= len(held) <= 5 + MAX_PREPARING
    requests.start("one", 1)
    assert (await requests.settle())[-1] == "one"


async def test_batches_leave_memory_to_others(requests: Requests) -> None:
    requests.start("batch", 50, is_patient=True)
    assert len(await requests.settle()) <= 3 + MAX_PREPARING
    requests.start("live", 1)
    assert (await requests.settle())[-1] == "live"


async def test_waiting_requests_may_be_cancelled(requests: Requests) -> None:
    requests.start("a", 30)
    await requests.settle()
    for task in requests.tasks:
        task.cancel()
    await requests.settle()
    requests.end(len(requests.held))
    requests.start("a", 1)
    assert await requests.settle() == ["a"]
