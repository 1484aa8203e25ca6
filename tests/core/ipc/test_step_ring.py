"""The sizes of the last steps can be read by others at any time."""

from __future__ import annotations

import time

from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.ipc.step_ring import NUM_STEPS, RING_BYTES, StepRing


def test_a_reader_finds_the_last_steps_in_order() -> None:
    buffer = memoryview(bytearray(RING_BYTES))
    writer, reader = StepRing(buffer), StepRing(buffer)
    assert reader.steps() == []
    before = time.time()
    for number in range(3 * NUM_STEPS):
        writer.add(StepSizes(number, 1, 2, 3, 4, 5, 6, 7))
        last = reader.steps()[-1]
        assert last.number == number + 1
        assert last.sizes == (number, 1, 2, 3, 4, 5, 6, 7)
        assert before - 1e-3 <= last.started_at <= time.time() + 1e-3
    assert [step.number for step in reader.steps()] == list(range(2 * NUM_STEPS + 2, 3 * NUM_STEPS + 1))
