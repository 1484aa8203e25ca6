"""The metrics of a run over time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .percentiles import milliseconds, percentile
from .runner import Run

NUM_PIECES = 20
MIN_S = 0.5


def timeline_of(run: Run) -> list[dict[str, Any]]:
    """Return the metrics of each piece of a run: 1/NUM_PIECES of the run's time, at least MIN_S seconds.

    Requests are counted in the pieces in which they were sent and in which they ended. Latencies (time to
    first token, time between tokens) are counted in the piece in which they ended.
    """
    length = max(MIN_S, run.wall / NUM_PIECES)
    pieces = [_Piece() for _ in range(1 + int(run.wall / length))]

    def at(time: float) -> _Piece:
        return pieces[min(len(pieces) - 1, max(0, int((time - run.started) / length)))]

    for reply in run.replies:
        at(reply.started).sent += 1
        at(reply.ended).ended += 1
        if reply.error is not None:
            at(reply.ended).failed += 1
            continue
        if not reply.times:
            continue
        at(reply.times[0]).first.append(reply.times[0] - reply.started)
        for before, now in pairwise(reply.times):
            at(now).gaps.append(now - before)
        tokens_an_event = (reply.output_tokens or 0) / len(reply.times)
        for now in reply.times:
            at(now).tokens += tokens_an_event
    return [{"from_s": round(i * length, 3), **piece.figures(length)} for i, piece in enumerate(pieces)]


class _Piece:
    """Counts and latencies in one piece of a run's time."""

    def __init__(self) -> None:
        self.sent = self.ended = self.failed = 0
        self.tokens = 0.0
        self.first: list[float] = []
        self.gaps: list[float] = []

    def figures(self, seconds: float) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "ended": self.ended,
            "failed": self.failed,
            "output_tok_s": round(self.tokens / seconds, 2),
            **{f"ttft_p{p}_ms": milliseconds(percentile(self.first, p)) for p in (50, 99)},
            **{f"itl_p{p}_ms": milliseconds(percentile(self.gaps, p)) for p in (50, 99)},
        }
