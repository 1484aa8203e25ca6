"""With a bound, no request is overtaken more often than that: the real scheduler, under random load."""

from __future__ import annotations

import random

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.sequence import SequenceState
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.policies.sjf import SJF

from ...length import of_length
from .driver import Driver, drive_at_random

BOUND = 3


class BoundedLPM(LPM):
    class Options(LPM.Options, frozen=True):
        max_overtaken: int = BOUND


class BoundedSJF(SJF):
    class Options(SJF.Options, frozen=True):
        max_overtaken: int = BOUND


class UnboundedLPM(LPM):
    class Options(LPM.Options, frozen=True):
        max_overtaken: int = 0


class Overtaking:
    """Counts, for each request that waits, the later ones of its class that are admitted before it."""

    def __init__(self) -> None:
        self.counts: dict[SequenceState, int] = {}
        self.waiting: set[SequenceState] = set()

    def arrived(self, seq: SequenceState) -> None:
        self.counts[seq] = 0
        self.waiting.add(seq)

    def admitted(self, seq: SequenceState) -> None:
        self.waiting.remove(seq)
        for other in self.waiting:
            same = other.request.deferrable == seq.request.deferrable
            self.counts[other] += same and other.arrival < seq.arrival

    def retracted(self, seq: SequenceState, reason: str) -> None:
        self.waiting.add(seq)

    def ended(self, seq: SequenceState, reason: str) -> None:
        self.waiting.discard(seq)

    def waits(self, seq: SequenceState, reason: str, num_ahead: int) -> None:
        pass

    def planned(self, plan: BatchPlan) -> None:
        pass


def drive(policy: type[SchedulePolicy], seed: int, overlap: bool, deferrable: float) -> tuple[int, int]:
    """Return how often a request was overtaken at most, and how many were retracted."""
    rng, counted = random.Random(seed), Overtaking()
    driver = Driver(
        policy=policy,
        num_tokens=rng.choice([64, 128, 256]),
        budget=rng.choice([7, 16, 64]),
        max_running=rng.choice([1, 3, 8]),
        overlap=overlap,
        conservativeness=rng.choice([0.05, 1.0]),
        share=rng.choice([0.0, 0.5]),
        trace=counted,
    )
    drive_at_random(driver, rng, 400, deferrable)
    driver.finish()
    return max(counted.counts.values()), driver.scheduler.num_retractions


@pytest.mark.long
@pytest.mark.parametrize("deferrable", [0.0, 0.4])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("policy", [BoundedLPM, BoundedSJF])
def test_no_request_is_overtaken_beyond_the_bound(
    policy: type[SchedulePolicy], overlap: bool, deferrable: float
) -> None:
    found = [drive(policy, seed, overlap, deferrable) for seed in range(of_length(4, 8))]
    assert max(most for most, _ in found) == BOUND
    assert sum(retracted for _, retracted in found) > 0


def test_without_a_bound_requests_are_overtaken_more_often() -> None:
    assert any(drive(UnboundedLPM, seed, False, 0.0)[0] > BOUND for seed in range(25))
