"""Finds lines that crash a process by giving them points. Pure functions on records.

A line gets points if the API process was working on it, or the engine was running it, when that process died.
A line with `SUSPECT` points runs alone from then on: if a crash follows, this line has caused it. A line with
`GUILTY` points is not run again.

- `CRASH`: points for a crash. Two crashes make a line guilty, so a line that crashes a process runs at most
  twice.
- `KILL`: points if the engine was ended from outside: by a signal that operators or the kernel send, or by a
  normal exit during shutdown. Usually no line is to blame, so it takes two such ends to make a line suspect,
  and four to make it guilty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from llmfw.core.interfaces.batch_store import BatchError, BatchRecord, LineCrash

CRASH, KILL = 2, 1
SUSPECT, GUILTY = 2, 4
MAX_CRASHES = 3  # crashes of the server, while it works on a job as a whole in one state, that end the job

_FROM_OUTSIDE = re.compile(r"killed by SIG(KILL|TERM|INT|HUP)\b|ended with exit code 0\b")
_CLOSED = "the engine was closed"


def points_of(reason: str) -> int:
    """Return the points to give to the lines that an engine was running when it ended for this reason."""
    if _CLOSED in reason:
        return 0
    return KILL if _FROM_OUTSIDE.search(reason) else CRASH


def accused(record: BatchRecord, lines: Iterable[int], points: int, done: Collection[int]) -> BatchRecord:
    """Return the record with crash points added to some lines. Drops the crash points of lines that have a result.

    Args:
        done: numbers of the lines that have a result.
    """
    known = {crash.line: crash.points for crash in record.line_crashes}
    for line in lines:
        known[line] = known.get(line, 0) + points
    kept = sorted((line, count) for line, count in known.items() if line not in done)
    crashes = tuple(LineCrash(line=line, points=count) for line, count in kept)
    return msgspec.structs.replace(record, line_crashes=crashes)


def crashed_as_a_whole(record: BatchRecord) -> BatchRecord:
    """Return the record with `num_crashes` increased by one.

    Called if the server died while it worked on the job as a whole (see `WHOLE_JOB`).
    """
    return msgspec.structs.replace(record, num_crashes=record.num_crashes + 1)


def why_abandoned(record: BatchRecord) -> BatchError | None:
    """Return the error of a job that has crashed the server too often; None if the job may run."""
    if record.num_crashes < MAX_CRASHES:
        return None
    return BatchError(
        code="batch_crashed_server",
        message=f"the server crashed {record.num_crashes} times while this batch was {record.status!r}: look for the "
        "reason in the server's log, then submit the batch again",
    )


def suspects(record: BatchRecord) -> dict[int, bool]:
    """Return the lines that must run alone: line → whether it is guilty, and so must not run at all."""
    return {crash.line: crash.points >= GUILTY for crash in record.line_crashes if crash.points >= SUSPECT}
