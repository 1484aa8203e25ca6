"""After a crash the request that caused it is found, and no other is blamed."""

from __future__ import annotations

import asyncio

import pytest

from llmfw.core.client import quarantine as module
from llmfw.core.client.quarantine import CRASH, KILL, Attempt, Quarantine, Witnesses


class Rig:
    """A quarantine, and requests that go through it as the supervisor sends them."""

    def __init__(self, *attempts: Attempt) -> None:
        self.quarantine = Quarantine()
        self.in_flight = list(attempts)

    async def run_again(self) -> None:
        """Let all in flight ask for their turns."""
        waiting, self.in_flight = self.in_flight, []
        for attempt in waiting:
            self.ask(attempt)
        await asyncio.sleep(0.01)

    def ask(self, attempt: Attempt) -> asyncio.Task[None]:
        async def run() -> None:
            await self.quarantine.wait_turn(attempt)
            self.in_flight.append(attempt)

        return asyncio.create_task(run())

    async def token(self, attempt: Attempt) -> None:
        self.quarantine.note_token(attempt)
        await asyncio.sleep(0.01)

    async def die(self, weight: int = CRASH) -> None:
        self.quarantine.judge(self.in_flight, weight)
        await self.run_again()


def some(num: int) -> list[Attempt]:
    return [Attempt(deferrable=False) for _ in range(num)]


async def test_requests_do_not_wait_before_a_crash() -> None:
    rig = Rig(*some(3))
    await rig.run_again()
    assert len(rig.in_flight) == 3


async def test_after_a_crash_requests_start_one_by_one() -> None:
    """Each waits for the first token of the one before it."""
    first, second, third = some(3)
    rig = Rig(first, second, third)
    await rig.die()
    assert rig.in_flight == [first]
    await rig.token(first)
    assert rig.in_flight == [first, second]
    await rig.token(second)
    await rig.token(third)
    newcomer = Attempt(deferrable=False)
    rig.ask(newcomer)
    await asyncio.sleep(0.01)
    assert rig.in_flight == [first, second, third, newcomer]


async def test_crashing_the_engine_alone_twice_convicts() -> None:
    guilty, innocent = some(2)
    rig = Rig(guilty, innocent)
    await rig.die()
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert guilty.is_convicted
    assert not innocent.is_convicted


async def test_a_crash_before_the_first_token_convicts() -> None:
    first, second, guilty = some(3)
    rig = Rig(first, second, guilty)
    await rig.die()
    await rig.token(first)
    await rig.token(second)
    assert rig.in_flight == [first, second, guilty]
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert [attempt.is_convicted for attempt in (first, second, guilty)] == [False, False, True]
    assert first.suspicion == second.suspicion == 0


async def test_an_early_crash_elsewhere_convicts_no_runner() -> None:
    """After a crash, the suspect was sent to another engine, where others run that were in no crash."""
    guilty, runner = some(2)
    Quarantine().judge([guilty], CRASH)
    rig = Rig(runner)
    await rig.run_again()
    await rig.token(runner)
    rig.ask(guilty)
    await asyncio.sleep(0.01)
    assert rig.in_flight == [runner, guilty]
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert guilty.is_convicted
    assert not runner.is_convicted
    assert runner.suspicion == 0


async def test_requests_without_a_token_are_tried_first() -> None:
    late, early = some(2)
    rig = Rig(late, early)
    rig.quarantine.note_token(late)
    await rig.die()
    assert rig.in_flight == [early]


async def test_a_neighbor_s_late_crash_convicts_none() -> None:
    late, innocent = some(2)
    rig = Rig(late)
    rig.quarantine.note_token(late)
    await rig.die()
    await rig.token(late)
    rig.ask(innocent)
    await asyncio.sleep(0.01)
    await rig.die()
    await rig.die()
    assert not innocent.is_convicted


async def test_the_fourth_crash_on_turn_always_convicts() -> None:
    quarantine, [guilty] = Quarantine(), some(1)
    for _ in range(4):
        assert not guilty.is_convicted
        await quarantine.wait_turn(guilty)
        quarantine.judge([guilty, *some(1)], CRASH)  # beside one that came past it by the time
    assert guilty.is_convicted


async def test_after_two_crashes_requests_run_alone() -> None:
    late, innocent = some(2)
    rig = Rig(late, innocent)
    for attempt in (late, innocent):
        rig.quarantine.note_token(attempt)
    await rig.die()
    await rig.token(late)
    await rig.die()  # of `late`, while it is the turn of `innocent`
    assert rig.in_flight == [late]
    await rig.token(late)
    assert rig.in_flight == [late]
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert late.is_convicted
    assert not innocent.is_convicted


async def test_an_outside_kill_blames_no_request() -> None:
    rig = Rig(*some(5))
    await rig.die(KILL)
    assert len(rig.in_flight) == 5
    [alone] = some(1)
    rig = Rig(alone)
    for _ in range(3):
        await rig.die(KILL)
        assert not alone.is_convicted


async def test_live_requests_go_before_deferrable_ones() -> None:
    lines = [Attempt(deferrable=True) for _ in range(3)]
    rig = Rig(*lines)
    await rig.die()
    [live] = some(1)
    rig.ask(live)
    await asyncio.sleep(0.01)
    await rig.token(lines[0])
    assert rig.in_flight == [lines[0], live]


async def test_a_disconnected_client_blocks_no_other() -> None:
    first, second, third = some(3)
    rig = Rig(first)
    await rig.die()
    gone = rig.ask(second)
    rig.ask(third)
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0.01)
    rig.quarantine.leave(first)
    await asyncio.sleep(0.01)
    assert rig.in_flight == [first, third]


async def test_a_turn_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALONE_S", 0.05)
    rig = Rig(*some(2))
    await rig.die()
    assert len(rig.in_flight) == 1
    await asyncio.sleep(0.1)
    assert len(rig.in_flight) == 2


def lines(num: int) -> list[Attempt]:
    return [Attempt(deferrable=True) for _ in range(num)]


async def test_a_batch_line_is_convicted_at_second_crash() -> None:
    innocent, guilty = lines(2)
    for line in (innocent, guilty):
        line.has_token = True
    rig = Rig(innocent, guilty)
    await rig.die()
    await rig.token(innocent)
    assert rig.in_flight == [innocent]  # alone to its end
    rig.in_flight.remove(innocent)
    rig.quarantine.leave(innocent)
    await asyncio.sleep(0.01)
    await rig.token(guilty)
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert guilty.is_convicted
    assert not innocent.is_convicted


async def test_new_live_requests_do_not_wait_for_lines() -> None:
    rig = Rig(*lines(3))
    await rig.die()
    [newcomer] = some(1)
    rig.ask(newcomer)
    await asyncio.sleep(0.01)
    assert newcomer in rig.in_flight


async def test_a_line_is_not_blamed_for_newcomers() -> None:
    [line], [newcomer] = lines(1), some(1)
    rig = Rig(line)
    await rig.die()
    rig.ask(newcomer)
    await asyncio.sleep(0.01)
    rig.quarantine.judge(rig.in_flight, CRASH)
    assert not line.is_convicted


async def test_kills_of_other_engines_clear_requests() -> None:
    """They die without the request, too: it is convicted only if it was there nearly each time."""
    witnesses, [line, other] = Witnesses(), some(2)
    engines = [Quarantine(witnesses), Quarantine(witnesses)]
    for turn in range(12):
        its_own, others = engines[turn % 2], engines[1 - turn % 2]
        await its_own.wait_turn(line)
        its_own.judge([line], KILL)
        its_own.leave(line)
        await others.wait_turn(line)
        its_own.judge([other], KILL)
        others.leave(line)
    assert not line.is_convicted
    assert line.suspicion == line.killed == 0
    for _ in range(4):
        await engines[0].wait_turn(line)
        engines[0].judge([line], KILL)
        engines[0].leave(line)
    assert line.is_convicted
    assert len(witnesses) == 0


async def test_kills_elsewhere_leave_crashes_suspect() -> None:
    witnesses, [bad, other] = Witnesses(), some(2)
    engines = [Quarantine(witnesses), Quarantine(witnesses)]
    engines[0].judge([bad, other], CRASH)
    await engines[1].wait_turn(bad)
    engines[0].judge([other], KILL)
    assert bad.suspicion == CRASH
