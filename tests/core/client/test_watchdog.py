"""An engine that hangs is found; one that is slow, or was not looked at for a while, is not."""

from __future__ import annotations

import pytest

from llmfw.core.client.watchdog import LOOK_S, Hang, ProcessState, Watchdog, WatchdogLimits
from llmfw.core.engine.process.heartbeat import Phase, Reading


class Rig:
    """A watchdog, and what it sees."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reading = Reading(0, 0, Phase.IDLE, 0)
        self.state: ProcessState | None = ProcessState(is_stopped=False, ticks=0)
        limits = WatchdogLimits(step_s=300, silent_s=10)
        self.watchdog = Watchdog(limits, lambda: self.reading, lambda: self.state, lambda: self.now)

    def looks(self, seconds: float, *, beats: int = 0, steps: int = 0, ticks: int = 0) -> Hang | None:
        """Return what the watchdog finds first within some seconds, in which the engine does so much a look."""
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            last = self.reading
            self.reading = last._replace(beats=last.beats + beats, progress=last.progress + steps)
            if self.state is not None:
                self.state = self.state._replace(ticks=self.state.ticks + ticks)
            if (hang := self.watchdog.look()) is not None:
                return hang
        return None

    def enter(self, phase: Phase, num_tokens: int = 0) -> None:
        self.reading = self.reading._replace(
            phase=phase, num_tokens=num_tokens, progress=self.reading.progress + 1
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.BUILDING])
def test_waiting_and_building_may_take_long(rig: Rig, phase: Phase) -> None:
    rig.enter(phase)
    assert rig.looks(3600, beats=1) is None


def test_a_long_step_hangs_after_the_timeout(rig: Rig) -> None:
    rig.enter(Phase.STEP, 8000)
    assert rig.looks(299, beats=1) is None
    hang = rig.looks(3, beats=1)
    assert hang == Hang("the engine hangs: it has been in a step of 8000 tokens for 300 s", is_stopped=False)


def test_finishing_steps_are_no_hang(rig: Rig) -> None:
    rig.enter(Phase.STEP, 1)
    assert rig.looks(3600, steps=1) is None


def test_a_stopped_process_is_found_within_eleven_seconds(rig: Rig) -> None:
    rig.looks(5, beats=1)
    rig.state = ProcessState(is_stopped=True, ticks=7)
    hang = rig.looks(11)
    assert hang is not None
    assert hang.is_stopped
    assert "no sign of life for 10 s; it was stopped by SIGSTOP" in hang.reason


def test_a_silent_process_is_quiet_long_before(rig: Rig) -> None:
    """Until its next sign of life."""
    rig.looks(5, beats=1)
    rig.looks(1.5)
    assert not rig.watchdog.is_quiet
    rig.looks(1)
    assert rig.watchdog.is_quiet
    rig.looks(0.5, ticks=1)
    assert not rig.watchdog.is_quiet


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.BUSY, Phase.STEP])
def test_an_inactive_process_hangs(rig: Rig, phase: Phase) -> None:
    rig.enter(phase)
    hang = rig.looks(12)
    assert hang is not None
    assert not hang.is_stopped


def test_computing_native_code_is_no_hang(rig: Rig) -> None:
    rig.enter(Phase.STEP)
    assert rig.looks(200, ticks=1) is None


def test_imports_may_take_as_long_as_steps(rig: Rig) -> None:
    rig.enter(Phase.BUILDING)
    assert rig.looks(290) is None
    assert rig.looks(20) is not None


def test_a_stopped_process_is_found_while_building(rig: Rig) -> None:
    rig.enter(Phase.BUILDING)
    rig.state = ProcessState(is_stopped=True, ticks=0)
    assert rig.looks(11) is not None


def test_suspended_time_does_not_count(rig: Rig) -> None:
    rig.enter(Phase.STEP)
    for _ in range(9):
        rig.now += 3600
        assert rig.watchdog.look() is None


def test_without_process_state_silence_counts(rig: Rig) -> None:
    rig.state = None
    assert rig.looks(12) is not None


def test_a_zero_timeout_disables_the_watchdog() -> None:
    assert WatchdogLimits.of(0) is None
    assert WatchdogLimits.of(3) == WatchdogLimits(3, 3)
    assert WatchdogLimits.of(300) == WatchdogLimits(300, 10)
