"""Keeps steps of deferrable sequences short while live requests may come: one that comes has to wait for their end.

How short follows from this machine's own times: a fraction of what live requests take to their first token, and how
much fits into it by what steps have taken so far. Without live requests for a while, steps may be as large as any.
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

LIVE_FOR_S = 10.0  # so long after a live request others are expected
FRACTION = 0.5  # of the time to the first token: a live request waits for half of a step on average
LEAST_STRETCH = 1.25  # a step may take so many times what the smallest one takes, in any case
NUM_REMEMBERED = 33  # times to first token, whose median counts
RATE = 0.1  # at which the times of steps are averaged
MOST_SURPRISE = (
    2.0  # a step that takes longer than so many times what was expected was disturbed from outside
)


class StepTimes:
    """How long steps take, by their size: an average for each power of two, and straight lines between these."""

    def __init__(self) -> None:
        self._averages: dict[int, tuple[float, float]] = {}  # size and seconds, by the size's number of bits

    def learn(self, size: int, seconds: float) -> None:
        """Take note of what a step took."""
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
        """Return the size of a step that takes no longer, or little longer than the smallest one.

        Where no step took longer, it is twice the largest so far: so larger ones are tried.
        """
        known = [self._averages[bits] for bits in sorted(self._averages)]
        if not known:
            return 1
        seconds = max(seconds, LEAST_STRETCH * known[0][1])
        for (size, fast), (larger, slow) in itertools.pairwise(known):
            if slow > seconds:
                return int(size + (larger - size) * (seconds - fast) / (slow - fast))
        return int(2 * known[-1][0])


class LatencyGuard:
    """Says what deferrable sequences may take of a step of their own.

    Args:
        whole: the largest step.
        num_ahead: a live request that comes may have to wait for so many steps.
        clock: seconds, from any start.
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
        self._prompts: dict[str, float] = {}  # seconds so far, of live prompts that are computed in pieces

    def begin(self) -> float:
        """Return the time at which a step begins, for `end`."""
        return self._clock()

    def limits(self) -> Limits:
        """Return the limits of a step without live sequences."""
        if not self._first_tokens or self._clock() - self._last_live > LIVE_FOR_S:
            return self._whole
        allowed = FRACTION * statistics.median(self._first_tokens) / self._num_ahead
        size = max(2, self._times.largest_within(allowed))  # the least prompt has a place and a token
        return Limits(min(size, self._whole.places), min(size, self._whole.tokens + 1), tokens_per_place=1)

    def end(self, begun: float, num_sequences: int, num_tokens: int) -> float:
        """Take note of a step's end.

        Args:
            begun: as `begin` told it.
            num_sequences: in the step, each of which counts as a token, too.
            num_tokens: of prompts, and drafts.

        Returns:
            Its seconds, without those in which it waited for the step before it.
        """
        now = self._clock()
        seconds, self._last_end = now - max(begun, self._last_end), now
        self._times.learn(num_sequences + num_tokens, seconds)
        return seconds

    def note_live(self, first_tokens: Iterable[float] = ()) -> None:
        """Take note that live requests ran, and after how many seconds of computing some had their first tokens."""
        self._last_live = self._clock()
        self._first_tokens.extend(first_tokens)

    def end_plan(self, plan: BatchPlan, begun: float) -> float:
        """Take note of the end of a step of an engine that generates; return its seconds, as `end` does."""
        prefills = plan.prefills
        seconds = self.end(begun, len(plan.sequences), sum(p.count for p in prefills) + plan.num_drafted)
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
