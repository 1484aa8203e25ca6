"""Limits the duration of steps that have only deferrable sequences, because a new live request waits for
their end.

A step may take a fraction of the typical time to first token of live requests. The times of earlier steps
show how large a step may be. After a while without live requests, steps may have any size.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable

from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.plan import BatchPlan

LIVE_FOR_S = 10.0  # seconds after a live request during which more live requests are expected
FRACTION = 0.5  # of the time to first token; a new live request waits for half of a step on average
LEAST_STRETCH = 1.25  # a step may always take this multiple of the smallest step's time
NUM_REMEMBERED = 33  # number of times to first token in the median
RATE = 0.1  # weight of a new step in the average times
MOST_SURPRISE = 2.0  # maximum time that a step counts as, as a multiple of the expected time


class StepTimes:
    """Average times of steps, by size: one average for each power of two, with linear interpolation between
    them."""

    def __init__(self) -> None:
        self._averages: dict[int, tuple[float, float]] = {}  # size and seconds, by the size's number of bits

    def learn(self, size: int, seconds: float) -> None:
        """Record the time of a step."""
        before = self._averages.get(size.bit_length())
        if before is None:
            self._averages[size.bit_length()] = (float(size), seconds)
            return
        seconds = min(seconds, MOST_SURPRISE * before[1])
        self._averages[size.bit_length()] = (
            before[0] + RATE * (size - before[0]),
            before[1] + RATE * (seconds - before[1]),
        )

    def largest_within(self, seconds: float) -> int:
        """Return the largest size of a step that is expected to take at most `seconds`.

        Steps of up to LEAST_STRETCH times the smallest step's time are always allowed. If no known step takes
        longer, return twice the largest known size, so that larger steps are tried.
        """
        known = [self._averages[bits] for bits in sorted(self._averages)]
        if not known:
            return 1
        seconds = max(seconds, LEAST_STRETCH * known[0][1])
        for (size, fast), (larger, slow) in itertools.pairwise(known):
            if slow > seconds:
                return int(size + (larger - size) * (seconds - fast) / (slow - fast))
        return int(2 * known[-1][0])


class DeferrableBudget:
    """Limits the size of steps that contain only deferrable sequences, so that a new live request does not wait long.

    Args:
        whole: limits that apply when no live request is expected.
        num_ahead: number of steps already launched that a new live request may have to wait for.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self, whole: Limits, *, num_ahead: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._whole = whole
        self._num_ahead = num_ahead
        self._clock = clock
        self._times = StepTimes()
        self._first_tokens: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._last_live = -math.inf
        self._last_end = -math.inf
        self._prompts: dict[str, float] = {}  # request id → seconds so far, of split live prompts

    def begin(self) -> float:
        """Return the start time of a step, for `end`."""
        return self._clock()

    def limits(self) -> Limits:
        """Return the limits of the next step if it has no live sequences."""
        if not self._first_tokens or self._clock() - self._last_live > LIVE_FOR_S:
            return self._whole
        allowed = FRACTION * statistics.median(self._first_tokens) / self._num_ahead
        size = max(2, self._times.largest_within(allowed))  # at least a sequence and a token
        return Limits(min(size, self._whole.places), min(size, self._whole.tokens + 1), tokens_per_place=1)

    def end(self, begun: float, num_sequences: int, num_tokens: int) -> float:
        """Record the end of a step.

        Args:
            begun: start time from `begin`.
            num_sequences: number of sequences in the step; each counts like a token toward the step's size.
            num_tokens: number of prompt tokens and drafted tokens.

        Returns:
            The duration of the step in seconds, not counting the wait for the previous step.
        """
        now = self._clock()
        seconds, self._last_end = now - max(begun, self._last_end), now
        self._times.learn(num_sequences + num_tokens, seconds)
        return seconds

    def note_live(self, first_tokens: Iterable[float] = ()) -> None:
        """Record that live requests ran.

        Args:
            first_tokens: compute time in seconds that some of them took to their first token.
        """
        self._last_live = self._clock()
        self._first_tokens.extend(first_tokens)

    def end_plan(self, plan: BatchPlan, begun: float) -> float:
        """Record the end of a step of an engine that generates; return the step's duration in seconds, as
        `end` does."""
        prefills = plan.prefills
        num_tokens = sum(p.count for p in prefills) + plan.num_drafted if prefills or plan.drafts else 0
        seconds = self.end(begun, len(plan.sequences), num_tokens)
        prompts: dict[str, float] = {}
        first_tokens = []
        for p in prefills:
            if p.start < p.seq.prompt_len >= p.end and not p.seq.request.deferrable:
                so_far = self._prompts.get(p.seq.id, 0.0) + seconds
                if p.samples:
                    first_tokens.append(so_far)
                else:
                    prompts[p.seq.id] = so_far
        if not all(seq.request.deferrable for seq in plan.sequences):
            self.note_live(first_tokens)
        self._prompts = prompts
        return seconds
