"""The phases of a step add up to its time."""

from __future__ import annotations

import itertools

import msgspec

from llmfw.core.engine.generation.step_meter import COMMIT, FORWARD, PLAN, SAMPLE, WAIT, StepMeter


def test_each_moment_belongs_to_one_phase() -> None:
    times = itertools.accumulate([0, 10, 1, 2, 3, 4, 5, 10, 1])
    meter = StepMeter(lambda: float(next(times)))
    meter.begin()
    for phase in (PLAN, FORWARD, SAMPLE, WAIT, COMMIT):
        meter.end(phase)
    meter.begin()
    meter.end(PLAN)
    assert msgspec.structs.astuple(meter.seconds) == (2, 2, 3, 4, 5)
    assert meter.num_steps == 1
