"""Records the last steps while a client watches, to display the batch. Otherwise, records nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.steps_view import RequestView, StepsView, StepView

if TYPE_CHECKING:
    from .plan import BatchPlan
    from .sequence import SequenceState

MAX_STEPS = 200
"""Maximum number of steps to keep: two seconds of a small model's steps. Each query returns about a tenth."""
MAX_RUNNING, MAX_WAITING = 1000, 100
"""Maximum number of requests in an answer."""
WATCHED_S = 2.0
"""Time in seconds for which steps are recorded after a call of `view`."""


class StepWatch:
    """Records the last steps between two calls of `view`.

    Args:
        clock: monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -1.0
        self._number = 0
        self._steps: deque[StepView] = deque(maxlen=MAX_STEPS)
        self._last: list[int] = []
        self._known: dict[int, RequestView] = {}

    def note(self, plan: BatchPlan) -> None:
        """Record a planned step, if a client watches."""
        if self._until < 0:
            return
        if self._clock() > self._until:
            self._until = -1.0
            self._steps.clear()
            self._known.clear()
            self._last = []
            return
        self._number += 1
        numbers = plan.sequences[0].table.arrival[plan.indices].tolist()
        is_same = numbers == self._last  # as in most steps; equal lists are kept once, see `_numbers`
        numbers = self._last if is_same else numbers
        step = StepView(
            self._number,
            time.time(),
            numbers,
            plan.counts.tolist(),
            plan.is_prefill.astype(int).tolist(),
        )
        self._steps.append(step)
        if not is_same:
            self._last = numbers
            new = [
                seq for number, seq in zip(numbers, plan.sequences, strict=True) if number not in self._known
            ]
            self._known.update((each.number, each) for each in _views(new))

    def view(
        self,
        after: int,
        running: Sequence[SequenceState],
        waiting: Sequence[tuple[SequenceState, str]],
        num_waiting: int,
    ) -> StepsView:
        """Return the recorded steps after step number `after`, and record steps from now on.

        Args:
            running: running sequences.
            waiting: the first waiting sequences in the policy's order, each with the reason why it waits.
            num_waiting: number of all waiting sequences.
        """
        self._until = self._clock() + WATCHED_S
        after = after if after <= self._number else 0
        runs = _views(running[:MAX_RUNNING])
        waits = _views([seq for seq, _ in waiting[:MAX_WAITING]], [reason for _, reason in waiting])
        steps = [step for step in self._steps if step.number > after]
        there = {each.number for each in (*runs, *waits)}
        ended = [self._known[number] for number in _numbers(steps) if number not in there]
        kept = set(_numbers(self._steps))
        self._known = {number: each for number, each in self._known.items() if number in kept}
        return StepsView(steps, runs, waits, ended, num_waiting)


def _numbers(steps: Iterable[StepView]) -> list[int]:
    """Return the numbers of the requests in these steps, without repetition. Reads shared lists only once."""
    lists = {id(step.requests): step.requests for step in steps}
    return list(dict.fromkeys(number for numbers in lists.values() for number in numbers))


def _views(sequences: Sequence[SequenceState], reasons: Sequence[str] | None = None) -> list[RequestView]:
    """Return the views of sequences.

    Reads the numbers of all sequences from the table at once, which is ten times faster than one by one.
    """
    if not sequences:
        return []
    table, indices = (
        sequences[0].table,
        np.fromiter((seq.index for seq in sequences), np.intp, len(sequences)),
    )
    columns = (table.arrival, table.length, table.num_computed)
    numbers, lengths, computed = (column[indices].tolist() for column in columns)
    return [
        RequestView(
            numbers[i],
            seq.id,
            seq.request.tenant,
            seq.request.deferrable,
            seq.prompt_len,
            lengths[i],
            computed[i],
            reasons[i] if reasons else "",
        )
        for i, seq in enumerate(sequences)
    ]
