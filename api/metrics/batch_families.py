"""Converts the states of batch jobs to metric families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from llmfw.api.batches.counts import BatchCounts
from llmfw.core.interfaces.batch_store import ENDED, BatchRecord

OPEN_STATES = ("validating", "in_progress", "finalizing", "cancelling")


class BatchProgress(msgspec.Struct, frozen=True):
    """The batch jobs at one moment.

    Attributes:
        unfinished: records of the jobs that have not ended.
        counts: numbers of jobs and lines that have ended since the server started.
    """

    unfinished: Sequence[BatchRecord]
    counts: BatchCounts


def batch_families(progress: BatchProgress) -> Iterator[Metric]:
    """Yield the metric families of batch jobs."""
    jobs = GaugeMetricFamily("llmfw_batch_jobs", "Batch jobs that have not ended.", labels=("state",))
    states = Counter(record.status for record in progress.unfinished)
    for state in OPEN_STATES:
        jobs.add_metric((state,), states[state])
    yield jobs
    yield GaugeMetricFamily(
        "llmfw_batch_lines_pending",
        "Lines of batch jobs that have not ended, without a result.",
        sum(
            max(0, record.num_total - record.num_completed - record.num_failed)
            for record in progress.unfinished
        ),
    )
    ended = CounterMetricFamily(
        "llmfw_batch_jobs_finished_total",
        "Batch jobs that ended since the server started.",
        labels=("state",),
    )
    for state in sorted(ENDED):
        ended.add_metric((state,), progress.counts.jobs[state])
    yield ended
    lines = CounterMetricFamily(
        "llmfw_batch_lines_total", "Lines that got a result since the server started.", labels=("result",)
    )
    lines.add_metric(("completed",), progress.counts.num_completed)
    lines.add_metric(("failed",), progress.counts.num_failed)
    yield lines
