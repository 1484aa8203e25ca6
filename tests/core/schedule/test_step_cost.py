"""What a grammar may take of the steps: an allowance for each token, and a debt that is paid back."""

from __future__ import annotations

import pytest

from llmfw.core.base.errors import GrammarCostError
from llmfw.core.schedule.step_cost import FREE_S, MAX_DEBT_S, StepCost


def test_masks_within_the_allowance_never_fail() -> None:
    cost = StepCost()
    for _ in range(10_000):
        cost.charge(FREE_S)
        cost.allow()
        cost.check()


def test_occasional_slow_masks_are_forgiven() -> None:
    cost = StepCost()
    for _ in range(100):
        cost.charge(0.99 * MAX_DEBT_S)
        cost.check()
        for _ in range(round(MAX_DEBT_S / FREE_S)):
            cost.allow()


def test_persistently_slow_masks_are_refused() -> None:
    cost = StepCost()
    for _ in range(11):
        cost.check()
        cost.charge(2 * FREE_S)
        cost.allow()
    with pytest.raises(GrammarCostError, match="ms more than the 20 ms a token"):
        cost.check()
