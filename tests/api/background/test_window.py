"""Lines in flight: never more than the limit, evenly shared, and as many as the engine's queue says."""

from __future__ import annotations

import asyncio
from collections import Counter

from llmfw.api.background.window import SAMPLES, Window


async def test_no_more_than_the_limit_are_in_flight() -> None:
    window = Window(8)
    entering = [asyncio.create_task(window.enter("job")) for _ in range(20)]
    await asyncio.sleep(0)
    assert window.total == window.limit == 10
    for _ in range(20):
        window.leave("job") if window.total else None
        await asyncio.sleep(0)
    assert all(task.done() for task in entering)
    assert window.total == 0


async def test_jobs_share_evenly_despite_their_size() -> None:
    window, entered = Window(8), Counter[str]()

    async def enter(job: str) -> None:
        await window.enter(job)
        entered[job] += 1

    tasks = [asyncio.create_task(enter("large")) for _ in range(100)]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(enter(job)) for job in ("small", "other") for _ in range(4)]
    await asyncio.sleep(0)
    for _ in range(6):
        window.leave("large")
        await asyncio.sleep(0)
    assert entered == {"large": 10, "small": 3, "other": 3}
    for task in tasks:
        task.cancel()


async def test_a_cancelled_waiter_takes_no_slot() -> None:
    window = Window(8)
    for _ in range(10):
        await window.enter("job")
    waiting = [asyncio.create_task(window.enter(job)) for job in ("gone", "late", "next")]
    await asyncio.sleep(0)
    waiting[0].cancel()
    window.leave("job")  # the second one's turn has come when it is cancelled
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[2].done()
    assert not waiting[2].cancelled()
    assert window.total == 10


async def test_the_window_follows_the_standing_queue() -> None:
    """A standing queue shrinks the window; without one it grows."""
    window = Window(64)
    for _ in range(72):
        await window.enter("job")
    for _ in range(SAMPLES):
        window.look(60)
    assert window.limit == 72 - (60 - 8)
    for _ in range(20):
        window.look(0)
    assert window.limit == 72


async def test_a_temporary_queue_does_not_change_the_window() -> None:
    window = Window(64)
    for _ in range(72):
        await window.enter("job")
    for _ in range(20):
        window.look(60)
        window.look(2)
    assert window.limit == 72


async def test_a_small_idle_queue_keeps_the_window() -> None:
    window = Window(64)
    for _ in range(72):
        await window.enter("job")
    for _ in range(20):
        window.look(window.total)
        if window.total > window.limit:
            window.leave("job")
    assert window.limit == 8


async def test_an_exclusive_line_waits_for_all_others() -> None:
    window = Window(8)
    await window.enter("one")
    alone = asyncio.create_task(window.enter("two", alone=True))
    after = [asyncio.create_task(window.enter("one")) for _ in range(3)]
    await asyncio.sleep(0)
    assert (alone.done(), window.total) == (False, 1)
    window.leave("one")
    await asyncio.sleep(0)
    assert (alone.done(), window.total) == (True, 1)
    window.leave("two")
    await asyncio.sleep(0)
    assert all(task.done() for task in after)


async def test_exclusive_lines_run_one_at_a_time() -> None:
    window, most = Window(8), 0

    async def work(job: str) -> None:
        nonlocal most
        async with window.alone(job):
            most = max(most, window.total)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(f"job {i % 3}") for i in range(12)))
    assert (most, window.total) == (1, 0)


async def test_a_cancelled_exclusive_line_blocks_no_other() -> None:
    window = Window(8)
    await window.enter("one")
    alone = asyncio.create_task(window.enter("two", alone=True))
    other = asyncio.create_task(window.enter("three"))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait({alone})
    await asyncio.sleep(0)
    assert other.done()
