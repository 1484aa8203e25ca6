"""Which lines are suspected of ending a process, and when one is found guilty: pure functions on records.

A line that the API process worked on when it died, or that the engine had when the engine died, gets points. With any
points it is a suspect and runs alone from then on, so that the next crash, too, is its own. With `GUILTY` points it is
not run any more.

- `CRASH`: two of them are enough, so a line that ends a process is tried twice.
- `KILL`: the engine was ended from outside: by a signal that operators and the kernel send, or in good order while the
  server ends. Most often no line is to blame, so it takes four, and the line is a suspect from the second one on.
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
    """Return the points that the end of an engine, for this reason, gives to the lines that it had."""
    if _CLOSED in reason:
        return 0
    return KILL if _FROM_OUTSIDE.search(reason) else CRASH


def accused(record: BatchRecord, lines: Iterable[int], points: int, done: Collection[int]) -> BatchRecord:
    """Return a job some lines of which get points. Those that have a result by now are forgotten.

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
    """Return why a job is not worked on any more; None: it is."""
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
