"""A step with wrong copies of states is refused by name, before an executor uses them as indices."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from llmfw.core.base.step import StateCopies, StepInput
from llmfw.core.base.step_check import StepLimits, check_step

LIMITS = StepLimits(num_rows=4, num_pages=9, page_size=1, max_len=50, vocab_size=20, num_snapshots=3)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


COPIES = StateCopies(ints(3, 6), ints(4, 1), ints(0, 1, 1), ints(6, 11, 13), ints(4, 5, 6))
STEP = StepInput(
    tokens=ints(1, 2, 3, 4),
    sources=ints(-1, -1, -1, -1),
    rows=ints(2, 0),
    starts=ints(5, 10),
    counts=ints(1, 3),
    num_sampled=ints(1, 0),
    num_single=1,
    num_sampling=1,
    states=COPIES,
)


def said_of(limits: StepLimits = LIMITS, **columns: Any) -> str:
    """Return what is said of the step with other columns of copies."""
    step = msgspec.structs.replace(STEP, states=msgspec.structs.replace(COPIES, **columns))
    with pytest.raises(ValueError, match="states") as caught:
        check_step(step, limits)
    return str(caught.value)


def test_right_copies_of_states_pass() -> None:
    check_step(STEP, LIMITS)


@pytest.mark.parametrize("value", [-1, 7, 10**12])
@pytest.mark.parametrize("column", ["sources", "targets"])
def test_a_slot_that_is_not_there_is_named(column: str, value: int) -> None:
    assert said_of(**{column: ints(0, value)}) == f"states.{column} has {value}; it must be 0 to 6"


@pytest.mark.parametrize("value", [-1, 0, 3, 7])
def test_a_row_is_no_slot_of_a_snapshot(value: int) -> None:
    assert said_of(slots=ints(4, 5, value)) == f"states.slots has {value}; it must be 4 to 6"


@pytest.mark.parametrize("position", [0, 10, 14])
def test_only_a_computed_state_is_copied(position: int) -> None:
    assert said_of(positions=ints(6, position, 13)) == f"states.positions has {position}; it must be 11 to 13"


def test_copies_in_a_wrong_order_are_refused() -> None:
    assert said_of(positions=ints(6, 13, 11)) == "states.places and states.positions must ascend"
    assert said_of(positions=ints(6, 13, 13)) == "states.places and states.positions must ascend"


def test_columns_of_different_lengths_are_named() -> None:
    assert said_of(slots=ints(4)) == "states.slots has 1 entries, and states.places has 3"
    assert said_of(places=ints(0, 1, 2)) == "states.places has 2; it must be 0 to 1"
    assert said_of(targets=np.zeros(2, np.int32)).startswith("states.targets is int32 [2]")


def test_a_model_without_snapshots_has_no_copies() -> None:
    assert said_of(StepLimits(4, 9, 1, 50, 20)) == "states.sources has 3; it must be 0 to -1"
