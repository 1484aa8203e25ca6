"""Policies that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from llmfw.core.interfaces.policy import Figures, Ordering, Places, Running, SchedulePolicy, Waiting
from llmfw.core.testing import SchedulePolicyTests


class ByArrival(SchedulePolicy):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.arrival)


class OrdersOnlyAdmitted(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering(super().order(waiting, figures).places[: figures.num_places])


class RequiresNonEmpty(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.arrival - waiting.arrival[0])


class ReturnsArrivalNumbers(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering(np.sort(waiting.arrival))


class SortsInPlace(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        order = super().order(waiting, figures)
        waiting.arrival.sort()
        return order


class NotDeterministic(ByArrival):
    turn = 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        self.turn += 1
        return Ordering(np.roll(super().order(waiting, figures).places, self.turn))


class FlipsEachFiftiethCall(ByArrival):
    turn = 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        self.turn += 1
        return Ordering(super().order(waiting, figures).places[:: -1 if self.turn % 50 == 0 else 1])


class BreaksTiesByColumn(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.priority, waiting.num_tokens)


class RetractsTiesByColumn(ByArrival):
    def retraction_order(self, running: Running, figures: Figures) -> Places:
        return running.num_output.argsort(kind="stable")


class HoldsWhileOthersRun(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        held = len(waiting) if figures.num_running else 0
        return Ordering(super().order(waiting, figures).places, held)


class HoldsLongPrompts(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        is_long = waiting.num_tokens > 50
        return Ordering(Ordering.by(is_long.astype(np.int64), waiting.arrival).places, int(is_long.sum()))


class RetractsForAnyone(ByArrival):
    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        return Ordering.by(running.arrival).places


class ReturnsColumnOrder(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering(np.arange(len(waiting)))


class RetractsTheNewestOnly(ByArrival):
    def retraction_order(self, running: Running, figures: Figures) -> Places:
        return running.arrival.argsort()[-1:]


class RetractsWaiting(ByArrival):
    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        return waiting.arrival.argsort()


class QuadraticTime(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        ranks = [np.count_nonzero(waiting.arrival < arrival) for arrival in waiting.arrival]
        return Ordering.by(np.array(ranks, dtype=np.int64))


class ParsesIdsAsNumbers(ByArrival):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        numbers = [int(waiting.request(place).id) for place in range(len(waiting))]
        return Ordering.by(np.array(numbers, dtype=np.int64))


class MisspellsItsField(ByArrival):
    conformance: ClassVar = {"fields": ["due_in_s"]}

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.field("due_in"), waiting.arrival)


class FailsForAField(ByArrival):
    conformance: ClassVar = {"fields": ["due_in_s"]}

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        if not np.isnan(waiting.field("due_in_s")).all():
            raise NotImplementedError
        return super().order(waiting, figures)


class KeepsEveryArrival(ByArrival):
    def __init__(self, options: SchedulePolicy.Options) -> None:
        super().__init__(options)
        self.seen: set[int] = set()

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        self.seen.update(waiting.arrival.tolist())
        return super().order(waiting, figures)


class BreaksTiesByLength(ByArrival):
    """Orders by priority, then by length; it is meant to order by priority, then by arrival."""

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(-waiting.priority, waiting.num_tokens, waiting.arrival)


class ByPriority(SchedulePolicy):
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(-waiting.priority, waiting.arrival)


class OfKind(SchedulePolicyTests):
    kind: type[SchedulePolicy]

    @pytest.fixture
    def policy(self) -> SchedulePolicy:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def reference(self) -> SchedulePolicy | None:
        return ByPriority(SchedulePolicy.Options()) if self.kind is BreaksTiesByLength else None


def test_class(kind: type[SchedulePolicy]) -> Any:
    """Return a test class for a policy."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in ByArrival.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
