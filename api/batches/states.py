"""The states of a batch job. Each transition is a pure function from record to record.

    validating ──► in_progress ──► finalizing ──► completed
        │               │              │    ├───► expired
        │               │              │    └───► failed      its input is gone, or it cannot be run
        ├──► failed     │              │
        └───────────────┴──────────────┴──────► cancelling ──► cancelled

Each function sets the timestamp of the new state. It is never earlier than the job's other timestamps, even
if the clock was set back. The functions do not access stores: the caller stores the new record only if the
stored status still equals the status in the record that the caller read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from llmfw.core.base.ids import sortable_id
from llmfw.core.interfaces.batch_store import ENDED, BatchError, BatchRecord, BatchUsage

NEXT: dict[str, frozenset[str]] = {
    "validating": frozenset({"in_progress", "failed", "cancelling"}),
    "in_progress": frozenset({"finalizing", "cancelling"}),
    "finalizing": frozenset({"completed", "expired", "failed", "cancelling"}),
    "cancelling": frozenset({"cancelled"}),
    **dict.fromkeys(ENDED, frozenset[str]()),
}
"""Maps each state to the states that may follow it."""

STAMPS = ("created_at", *(f"{status}_at" for status in sorted(NEXT) if status != "validating"))
"""Names of the fields that say when a job entered each state."""


def may_be_cancelled(status: str) -> bool:
    """Return whether a job in this state can still be cancelled."""
    return "cancelling" in NEXT[status]


def accepted(
    record: BatchRecord, num_total: int, model: str, adapters: Mapping[str, str], now: int
) -> BatchRecord:
    """Return the job in state "in_progress": its input is valid, and its lines start to run."""
    return _to(record, "in_progress", in_progress_at=now, num_total=num_total, model=model, adapters=adapters)


def rejected(record: BatchRecord, errors: Sequence[BatchError], now: int) -> BatchRecord:
    """Return the job in state "failed": its input is invalid."""
    return _to(record, "failed", failed_at=now, errors=tuple(errors))


def cancelling(record: BatchRecord, now: int) -> BatchRecord:
    """Return the job in state "cancelling": it ends now, with the results so far."""
    return _to(record, "cancelling", cancelling_at=now, **_file_ids(record))


def counted(record: BatchRecord, num_total: int, model: str) -> BatchRecord:
    """Return a cancelled job with its number of lines and its model.

    The job was cancelled before it was validated, so no line will run.
    """
    _check(record, "cancelling")
    return msgspec.structs.replace(record, num_total=num_total, model=model)


def finalizing(record: BatchRecord, outcome: str, now: int, errors: Sequence[BatchError] = ()) -> BatchRecord:
    """Return the job in state "finalizing": no more lines run, and its files can be written.

    Args:
        outcome: the final state of the job.
        errors: reasons why the job could not continue.
    """
    assert outcome in NEXT["finalizing"] & ENDED, outcome
    changes = {"finalizing_at": now, "outcome": outcome, "errors": tuple(errors)}
    return _to(record, "finalizing", **changes, **_file_ids(record))


def ended(
    record: BatchRecord, now: int, usage: BatchUsage | None, errors: Sequence[BatchError] = ()
) -> BatchRecord:
    """Return the job in its final state, after its files were written. Drops the id of a file without lines.

    Args:
        record: the record, with the counts of completed and failed lines.
        errors: reasons why lines have no results, in addition to those in the record.
    """
    outcome = "cancelled" if record.status == "cancelling" else record.outcome
    changes = {f"{outcome}_at": now, "usage": usage, "errors": (*record.errors, *errors)}
    output_file_id = record.output_file_id if record.num_completed else None
    error_file_id = record.error_file_id if record.num_failed else None
    return _to(record, outcome, output_file_id=output_file_id, error_file_id=error_file_id, **changes)


def abandoned(record: BatchRecord, now: int, error: BatchError) -> BatchRecord:
    """Return the job in its final state, without files, because it was given up.

    Args:
        record: a record in any state except "in_progress" and the states of ENDED.
        error: the reason.
    """
    outcome = "cancelled" if record.status == "cancelling" else "failed"
    without = msgspec.structs.replace(record, output_file_id=None, error_file_id=None)
    return _to(without, outcome, **{f"{outcome}_at": now}, errors=(*record.errors, error))


def _file_ids(record: BatchRecord) -> dict[str, str]:
    """Return the ids of a job's files, new ones if it has none.

    They are stored together with a change of state, so that no concurrent change can lose them.
    """
    return {
        "output_file_id": record.output_file_id or sortable_id("file-"),
        "error_file_id": record.error_file_id or sortable_id("file-"),
    }


def _to(record: BatchRecord, status: str, **changes: object) -> BatchRecord:
    assert status in NEXT[record.status], f"{record.status} → {status}"
    return msgspec.structs.replace(
        record, status=status, num_crashes=0, **{k: _not_before(record, k, v) for k, v in changes.items()}
    )


def _not_before(record: BatchRecord, name: str, value: object) -> object:
    """Return the value to store in a field. A timestamp is raised to the job's latest timestamp."""
    if not (name in STAMPS and isinstance(value, int)):
        return value
    known = (getattr(record, stamp) for stamp in STAMPS)
    return max(value, *(stamp for stamp in known if stamp is not None))


def _check(record: BatchRecord, status: str) -> None:
    assert record.status == status, f"{record.status}, not {status}"
