"""Finds the files that batch jobs still need."""

from __future__ import annotations

from llmfw.core.interfaces.batch_store import BatchRecord, BatchStore

PAGE = 1000
SETTLING = ("cancelling", "finalizing")
"""The states of jobs that come to their end by themselves, and soon."""


async def inputs_in_use(batches: BatchStore) -> dict[str, BatchRecord]:
    """Return the files that are the input of a job that has not ended, each with such a job: not a settling one if
    there is another.
    """
    found: dict[str, BatchRecord] = {}
    after: str | None = None
    while page := await batches.list(after=after, limit=PAGE, unfinished=True):
        for job in page:
            known = found.get(job.input_file_id)
            if known is None or known.status in SETTLING:
                found[job.input_file_id] = job
        after = page[-1].id
    return found
