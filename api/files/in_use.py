"""Finds the files that batch jobs still need."""

from __future__ import annotations

from llmfw.core.interfaces.batch_store import BatchRecord, BatchStore

PAGE = 1000
SETTLING = ("cancelling", "finalizing")
"""States of jobs that will soon end by themselves."""


async def inputs_in_use(batches: BatchStore) -> dict[str, BatchRecord]:
    """Return the input files of all jobs that have not ended: file id → the record of one such job.

    If several jobs read the same file, a job whose state is not in SETTLING is preferred.
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
