"""Logs the engine's steps, in the format of SGLang's log."""

from __future__ import annotations

import logging
import time

from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation

logger = logging.getLogger(__name__)


class StepLog:
    """Logs each step that has prompt tokens, and every n-th step that has decoding sequences.

    Args:
        scheduler, pages: sources of the logged statistics.
        interval: number of decode steps per line (n).
        speculation: source of the statistics of drafts; None: there are no drafts.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pages: SequencePages,
        interval: int,
        speculation: Speculation | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._pages = pages
        self._interval = interval
        self._speculation = speculation
        self._num_drafted = 0
        self._num_accepted = 0
        self._num_decoded = 0
        self._num_decode_steps = 0
        self._num_generated = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._since = time.perf_counter()

    def note(self, plan: BatchPlan) -> None:
        """Record a launched step."""
        # Output tokens that a grammar forced are computed like prompt tokens, but do not count as such.
        prefills = plan.prefills and [p for p in plan.prefills if p.is_new or p.start < p.seq.prompt_len]
        num_forced = plan.num_tokens - len(plan.sequences)
        if prefills:
            num_forced -= sum(p.count - 1 for p in prefills)
        if plan.drafts:
            num_forced -= plan.num_drafted
        if prefills and logger.isEnabledFor(logging.INFO):
            self._log_prefill(plan, [p.count for p in prefills], sum(p.start for p in prefills if p.is_new))
        self._num_generated += plan.num_sampling + num_forced
        if len(prefills) < len(plan.sequences):
            self._num_decoded += len(plan.sequences) - len(prefills)
            self._num_decode_steps += 1
            if self._num_decode_steps % self._interval == 0:
                self._log_decode(len(plan.sequences) - len(prefills))

    def _log_prefill(self, plan: BatchPlan, counts: list[int], num_cached: int) -> None:
        num_new = int(plan.is_new.sum())
        self._num_prompt_tokens += sum(counts) + num_cached
        self._num_cached_tokens += num_cached
        logger.info(
            "Prefill batch. #new-seq: %d, #new-token: %d, #cached-token: %d, cache hit rate: %.2f%%, "
            "token usage: %.2f, #running-req: %d, #queue-req: %d",
            *(num_new, sum(counts), num_cached, 100 * self._num_cached_tokens / self._num_prompt_tokens),
            *(self._usage(), self._scheduler.num_running - num_new, self._scheduler.num_waiting),
        )

    def _log_decode(self, num_running: int) -> None:
        now = time.perf_counter()
        drafts = self._drafts()
        rate = self._num_generated / (now - self._since)
        self._since, self._num_generated = now, 0
        logger.info(
            "Decode batch. #running-req: %d, #token: %d, token usage: %.2f, gen throughput (token/s): %.2f, "
            "%s#queue-req: %d",
            *(
                num_running,
                self._pages.num_used_tokens,
                self._usage(),
                rate,
                drafts,
                self._scheduler.num_waiting,
            ),
        )

    def _drafts(self) -> str:
        """Return the acceptance of drafts since the last line, as text; the step that was just launched does
        not count."""
        speculation = self._speculation
        if speculation is None:
            return ""
        num_accepted = speculation.num_accepted - self._num_accepted
        num_drafted = speculation.num_drafted - self._num_drafted
        self._num_generated += num_accepted
        length = 1 + num_accepted / self._num_decoded
        self._num_accepted, self._num_drafted = speculation.num_accepted, speculation.num_drafted
        self._num_decoded = 0
        return f"accept len: {length:.2f}, accept rate: {num_accepted / max(1, num_drafted):.2f}, "

    def _usage(self) -> float:
        return self._pages.num_used_tokens / self._pages.num_total_tokens
