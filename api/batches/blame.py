"""Finds the lines that crash a process, by points: pure functions on records.

A line gets points if the API process worked on it when that process died, or if the engine had it when the engine died.
A line with points is a suspect and runs alone from then on, so that the next crash is certainly its own. A line with
`GUILTY` points does not run any more.

- `CRASH`: two are enough, so a line that ends a process is tried twice.
- `KILL`: the engine was ended from outside, by a signal that operators and the kernel send, or normally while the server
  ends. Usually no line is to blame, so four are needed, and the line is a suspect from the second one on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from llmfw.core.interfaces.batch_store import BatchError, BatchRecord, LineCrash

CRASH, KILL = 2, 1
SUSPECT, GUILTY = 2, 4
MAX_CRASHES = 3  # of a job as a whole in one state

_FROM_OUTSIDE = re.compile(r"killed by SIG(KILL|TERM|INT|HUP)\b|ended with exit code 0\b")
_CLOSED = "the engine was closed"


def points_of(reason: str) -> int:
    """Return the points for the lines of an engine that ended for this reason."""
    if _CLOSED in reason:
        return 0
    return KILL if _FROM_OUTSIDE.search(reason) else CRASH


def accused(record: BatchRecord, lines: Iterable[int], points: int, done: Collection[int]) -> BatchRecord:
    """Return a job with points for some lines. Drops the points of lines that have a result by now.

    Args:
        done: lines with a result.
    """
    known = {crash.line: crash.points for crash in record.line_crashes}
    for line in lines:
        known[line] = known.get(line, 0) + points
    kept = sorted((line, count) for line, count in known.items() if line not in done)
    crashes = tuple(LineCrash(line=line, points=count) for line, count in kept)
    return msgspec.structs.replace(record, line_crashes=crashes)


def crashed_as_a_whole(record: BatchRecord) -> BatchRecord:
    """Return a job that was being validated, or whose files were being written, when the server died."""
    return msgspec.structs.replace(record, num_crashes=record.num_crashes + 1)


def why_abandoned(record: BatchRecord) -> BatchError | None:
    """Return the error of a job that has crashed the server too often; None: the job may run."""
    if record.num_crashes < MAX_CRASHES:
        return None
    return BatchError(
        code="batch_crashed_server",
        message=f"the server crashed {record.num_crashes} times while this batch was {record.status!r}: look for the "
        "reason in the server's log, then submit the batch again",
    )


def suspects(record: BatchRecord) -> dict[int, bool]:
    """Map each line that must not run together with others to whether it must not run at all."""
    return {crash.line: crash.points >= GUILTY for crash in record.line_crashes if crash.points >= SUSPECT}
