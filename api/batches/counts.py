"""Counts the outcomes of batch jobs and their lines in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from llmfw.core.interfaces.batch_store import BatchRecord, LineResult


class BatchCounts:
    """Totals since this process started.

    Attributes:
        jobs: number of jobs that ended, by state.
        num_completed, num_failed: number of lines that got a result.
    """

    def __init__(self) -> None:
        self.jobs: Counter[str] = Counter()
        self.num_completed = self.num_failed = 0

    def note_results(self, results: Iterable[LineResult]) -> None:
        """Count stored results."""
        for result in results:
            if result.failed:
                self.num_failed += 1
            else:
                self.num_completed += 1

    def note_end(self, record: BatchRecord) -> None:
        """Count a job that has ended."""
        self.jobs[record.status] += 1
