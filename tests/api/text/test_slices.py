"""Large lists of replies are formatted in slices, and others run in between."""

from __future__ import annotations

import asyncio

import msgspec

from llmfw.api.text.slices import SLICE, ListWriter, Slices


async def rounds_beside(*works: asyncio.Task[None]) -> int:
    """Return the number of rounds of the event loop until all works are done."""
    rounds = 0
    while not all(work.done() for work in works):
        rounds += 1
        await asyncio.sleep(0)
    return rounds


async def write(slices: Slices, num_items: int, weight: int) -> bytes:
    writer = ListWriter(slices)
    await writer.extend(range(num_items), lambda item: item, weight)
    return bytes(writer.json())


async def test_slicing_does_not_change_a_list() -> None:
    for num_items in (0, 1, SLICE, 3 * SLICE + 1):
        assert msgspec.json.decode(await write(Slices(), num_items, 1)) == list(range(num_items))


async def test_one_slice_runs_each_round() -> None:
    slices = Slices()
    works = [asyncio.create_task(write(slices, 10 * SLICE // 20, 20)) for _ in range(5)]
    assert await rounds_beside(*works) >= 5 * 10 - 1


async def test_many_small_lists_are_counted_together() -> None:
    slices = Slices()

    async def work() -> None:
        for _ in range(100):
            await write(slices, SLICE // 10, 1)

    assert await rounds_beside(asyncio.create_task(work())) >= 9


async def test_a_list_can_be_extended() -> None:
    writer = ListWriter(Slices())
    await writer.extend([1, 2], str)
    await writer.extend([3], str)
    assert bytes(writer.json()) == b'["1","2","3"]'
    assert writer.num_items == 3
