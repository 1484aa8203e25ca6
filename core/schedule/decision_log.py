"""Records the scheduler's decisions about recent requests, for queries and for the log (level DEBUG).

Consecutive equal decisions form one entry: a request that waits for a thousand steps because no row is free
has one entry. A prompt that is computed in a hundred pieces also has one entry. Decoding steps are not
recorded. Two reasons are equal if their texts up to the first colon are equal; the entry keeps the full text
of the last reason.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmfw.core.base.control import RequestTrace, TraceEntry
from llmfw.core.base.errors import NotFoundError

if TYPE_CHECKING:
    from .plan import BatchPlan
    from .sequence import SequenceState

logger = logging.getLogger("llmfw.core.schedule.trace")

MAX_ENTRIES = 200
"""Maximum number of entries per request. Beyond it, entries in the middle are dropped."""


class _Run:
    """A run of equal consecutive decisions about a request, with the fields of `TraceEntry`."""

    __slots__ = ("at", "first", "kind", "last", "num_ahead", "num_tokens", "reason", "until")

    def __init__(self, kind: str, at: float, step: int, reason: str) -> None:
        self.kind = kind
        self.at = self.until = at
        self.first = self.last = step
        self.reason = reason
        self.num_tokens = 0
        self.num_ahead = 0

    def to_entry(self, arrived: float) -> TraceEntry:
        return TraceEntry(
            self.kind,
            at_s=round(self.at - arrived, 6),
            until_s=round(self.until - arrived, 6),
            first_step=self.first,
            last_step=self.last,
            reason=self.reason,
            num_tokens=self.num_tokens,
            num_ahead=self.num_ahead,
        )


class _Record:
    """The decisions about one request.

    Attributes:
        arrived_at: arrival, in seconds since the epoch.
        arrived: arrival, in seconds on the log's clock.
        num_left_out: number of entries dropped.
    """

    __slots__ = ("arrived", "arrived_at", "num_left_out", "prompt_tokens", "runs")

    def __init__(self, arrived_at: float, arrived: float, prompt_tokens: int) -> None:
        self.arrived_at = arrived_at
        self.arrived = arrived
        self.prompt_tokens = prompt_tokens
        self.runs: list[_Run] = []
        self.num_left_out = 0

    def run(self, kind: str, now: float, step: int, reason: str = "") -> _Run:
        """Add a decision to the last run if the two are equal, else to a new run; return the run."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last.kind == kind and _is_same(last.reason, reason):
            last.until, last.last, last.reason = now, step, reason
            return last
        if len(self.runs) == MAX_ENTRIES:
            del self.runs[MAX_ENTRIES // 2]
            self.num_left_out += 1
        self.runs.append(_Run(kind, now, step, reason))
        return self.runs[-1]


class DecisionLog:
    """A `DecisionTrace` that stores the decisions about the most recent requests.

    Args:
        most: maximum number of requests to keep.
        clock: monotonic clock in seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._step = 1  # number of the step that is being planned

    def find(self, request_id: str) -> RequestTrace:
        """Return the decisions about a request.

        Raises:
            NotFoundError: the request is unknown, or too old to be kept.
        """
        record = self._records.get(request_id)
        if record is None:
            raise NotFoundError(
                f"nothing is known of a request {request_id!r}: decisions are kept of the last {self._most} requests "
                f"(--trace-requests), {len(self._records)} so far",
                param="id",
            )
        return RequestTrace(
            request_id,
            record.arrived_at,
            record.prompt_tokens,
            [run.to_entry(record.arrived) for run in record.runs],
            record.num_left_out,
        )

    def arrived(self, seq: SequenceState) -> None:
        """Record an arrival; see `DecisionTrace.arrived`."""
        while len(self._records) >= self._most:
            self._records.popitem(last=False)
        self._records[seq.id] = _Record(time.time(), self._clock(), seq.prompt_len)
        self._note(seq, "arrived", "")

    def waits(self, seq: SequenceState, reason: str, num_ahead: int) -> None:
        """Record that a request was not admitted; see `DecisionTrace.waits`."""
        if (run := self._note(seq, "waits", reason)) is not None:
            run.num_ahead = num_ahead

    def admitted(self, seq: SequenceState) -> None:
        """Record an admission; see `DecisionTrace.admitted`."""
        self._note(seq, "admitted", "", seq.num_computed)

    def planned(self, plan: BatchPlan) -> None:
        """Record the pieces of prompts in a step; see `DecisionTrace.planned`."""
        for part in plan.prefills:
            self._note(part.seq, "computed", "", part.count)
        self._step += 1

    def retracted(self, seq: SequenceState, reason: str) -> None:
        """Record a retraction; see `DecisionTrace.retracted`."""
        self._note(seq, "retracted", reason)

    def ended(self, seq: SequenceState, reason: str) -> None:
        """Record the end of a request; see `DecisionTrace.ended`."""
        self._note(seq, "ended", reason)

    def _note(self, seq: SequenceState, kind: str, reason: str, num_tokens: int = 0) -> _Run | None:
        """Add a decision to a request's record and return its run; None if the request is no longer kept."""
        record = self._records.get(seq.id)
        if record is None:
            return None
        run = record.run(kind, self._clock(), self._step, reason)
        run.num_tokens += num_tokens
        if logger.isEnabledFor(logging.DEBUG) and (run.first == self._step or num_tokens):
            logger.debug("%s", _line(seq.id, self._step, kind, reason, num_tokens))
        return run


def _is_same(first: str, second: str) -> bool:
    return first == second or first.partition(":")[0] == second.partition(":")[0]


def _line(request_id: str, step: int, kind: str, reason: str, num_tokens: int) -> str:
    tokens = f" {num_tokens} tokens" if kind in ("admitted", "computed") else ""
    cached = " from the cache" if kind == "admitted" else ""
    return f"request {request_id} step {step}: {kind}{tokens}{cached}{': ' if reason else ''}{reason}"
