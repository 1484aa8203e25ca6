"""Keeps the last steps while somebody watches, for a picture of the batch. It costs nothing else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from llmfw.core.base.control import RequestView, StepsView, StepView

if TYPE_CHECKING:
    from .plan import BatchPlan
    from .sequence import SequenceState

MAX_STEPS = 200
"""Maximum number of steps to keep: two seconds of a small model's, of which each question takes a tenth."""
MAX_RUNNING, MAX_WAITING = 1000, 100
"""Maximum number of requests in an answer."""
WATCHED_S = 2.0
"""Seconds for which steps are kept after a question."""


class StepWatch:
    """Keeps what the last steps computed, from one question to the next.

    Args:
        clock: monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -1.0
        self._number = 0
        self._steps: deque[StepView] = deque(maxlen=MAX_STEPS)
        self._known: dict[int, RequestView] = {}

    def note(self, plan: BatchPlan) -> None:
        """Keep a planned step, if somebody watches."""
        if self._until < 0:
            return
        if self._clock() > self._until:
            self._until = -1.0
            self._steps.clear()
            self._known.clear()
            return
        self._number += 1
        numbers = plan.sequences[0].table.arrival[plan.indices].tolist()
        step = StepView(
            self._number,
            time.time(),
            numbers,
            plan.counts.tolist(),
            plan.is_prefill.astype(int).tolist(),
        )
        self._steps.append(step)
        for number, seq in zip(numbers, plan.sequences, strict=True):
            if number not in self._known:
                self._known[number] = _view(seq)

    def view(
        self,
        after: int,
        running: Iterable[SequenceState],
        waiting: Iterable[tuple[SequenceState, str]],
        num_waiting: int,
    ) -> StepsView:
        """Return the steps after a number, and keep steps from now on.

        Args:
            running: running sequences.
            waiting: waiting sequences in the policy's order, and why each waits.
            num_waiting: number of all waiting sequences.
        """
        self._until = self._clock() + WATCHED_S
        after = after if after <= self._number else 0
        runs = [_view(seq) for seq in islice(running, MAX_RUNNING)]
        waits = [_view(seq, reason) for seq, reason in islice(waiting, MAX_WAITING)]
        steps = [step for step in self._steps if step.number > after]
        there = {each.number for each in (*runs, *waits)}
        ended = [self._known[number] for number in _numbers(steps) if number not in there]
        kept = set(_numbers(self._steps))
        self._known = {number: each for number, each in self._known.items() if number in kept}
        return StepsView(steps, runs, waits, ended, num_waiting)


def _numbers(steps: Iterable[StepView]) -> Iterator[int]:
    """Return the numbers of the requests in some steps, each once."""
    return iter(dict.fromkeys(number for step in steps for number in step.requests))


def _view(seq: SequenceState, reason: str = "") -> RequestView:
    request = seq.request
    return RequestView(
        seq.arrival,
        seq.id,
        request.tenant,
        request.deferrable,
        seq.prompt_len,
        seq.length,
        seq.num_computed,
        reason,
    )
