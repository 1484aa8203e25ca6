"""Converts a job's record to OpenAI's batch object."""

from __future__ import annotations

from msgspec import UNSET

from llmfw.api.schemas.batches import (
    Batch,
    BatchErrorEntry,
    BatchErrors,
    InputTokensDetails,
    OutputTokensDetails,
    RequestCounts,
    Usage,
)
from llmfw.core.interfaces.batch_store import ENDED, BatchRecord, BatchUsage


def view(record: BatchRecord, most_errors: int | None = None) -> Batch:
    """Return the batch object that clients see. It has the ids of the files only once the job has ended.

    Args:
        most_errors: maximum number of errors to include; None: no maximum. If there are more errors, a last
            entry says how many.
    """
    has_ended = record.status in ENDED
    return Batch(
        id=record.id,
        endpoint=record.endpoint,
        model=record.model or UNSET,
        errors=_errors(record, most_errors),
        input_file_id=record.input_file_id,
        completion_window=record.completion_window,
        status=record.status,  # type: ignore[arg-type]
        output_file_id=record.output_file_id if has_ended else None,
        error_file_id=record.error_file_id if has_ended else None,
        created_at=record.created_at,
        in_progress_at=record.in_progress_at,
        expires_at=record.expires_at,
        finalizing_at=record.finalizing_at,
        completed_at=record.completed_at,
        failed_at=record.failed_at,
        expired_at=record.expired_at,
        cancelling_at=record.cancelling_at,
        cancelled_at=record.cancelled_at,
        request_counts=RequestCounts(
            total=record.num_total, completed=record.num_completed, failed=record.num_failed
        ),
        usage=UNSET if record.usage is None else _usage(record.usage),
        metadata=None if record.metadata is None else dict(record.metadata),
    )


def _errors(record: BatchRecord, most: int | None) -> BatchErrors | None:
    if not record.errors:
        return None
    shown = [
        BatchErrorEntry(code=error.code, line=error.line, message=error.message, param=error.param)
        for error in record.errors[:most]
    ]
    more = len(record.errors) - len(shown)
    if more:
        message = f"{more} more; the batch itself has them all"
        shown.append(BatchErrorEntry(code="more_errors", line=None, message=message, param=None))
    return BatchErrors(data=shown)


def _usage(usage: BatchUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(usage.reasoning_tokens),
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
