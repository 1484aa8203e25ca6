"""Makes an engine's reports to the router's process: the contents of the prefix cache, and the speed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from llmfw.core.base.engine_info import EngineReport
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.schedule.cache.cache_journal import CacheJournal

FADING = 0.95
"""Factor by which each step with prompt tokens reduces the weight of earlier steps."""

NEWS = 1.1
"""Minimum ratio of the new speed to the reported one, or the reverse, for a report of the speed alone."""


class PrefillMeter:
    """Measures the number of prompt tokens per second, in steps with prompt tokens.

    Attributes:
        tokens_per_s: the speed of the last steps; 0.0: not measured yet.
    """

    def __init__(self) -> None:
        self.tokens_per_s = 0.0
        self._tokens = 0.0
        self._seconds = 0.0

    def note(self, sizes: StepSizes, seconds: float) -> None:
        """Count a step."""
        num_decoding = sizes.num_sequences - sizes.num_prefilling
        num_tokens = sizes.num_tokens - num_decoding  # with drafts, some of these are drafted tokens
        if sizes.num_prefilling and num_tokens > 0 and seconds > 0:
            self._tokens = FADING * self._tokens + num_tokens
            self._seconds = FADING * self._seconds + seconds
            self.tokens_per_s = self._tokens / self._seconds


class EngineReporter:
    """Numbers the reports, so that the reader notices if one is missing.

    Args:
        journal: changes of the prefix cache; None: the engine has no prefix cache, and only its speed is reported.
    """

    def __init__(self, journal: CacheJournal | None) -> None:
        self.meter = PrefillMeter()
        self._journal = journal
        self._number = 0
        self._told_speed = 0.0

    def take(self) -> EngineReport | None:
        """Return a report of the changes since the last report; None if nothing has changed."""
        entry = None if self._journal is None else self._journal.take()
        if entry is None and not self._has_new_speed():
            return None
        added, removed = ((), ()) if entry is None else entry
        return self._report(added, removed, is_whole=False)

    def take_whole(self) -> EngineReport:
        """Return a report of the whole prefix cache, which needs no earlier report."""
        held = [] if self._journal is None else self._journal.take_all()
        return self._report(held, (), is_whole=True)

    def _has_new_speed(self) -> bool:
        now, told = self.meter.tokens_per_s, self._told_speed
        return now > NEWS * told or now * NEWS < told

    def _report(self, added: Sequence[int], removed: Sequence[int], *, is_whole: bool) -> EngineReport:
        self._number += 1
        self._told_speed = self.meter.tokens_per_s
        return EngineReport(
            number=self._number,
            is_whole=is_whole,
            block=0 if self._journal is None else self._journal.block,
            added=array("Q", added).tobytes(),
            removed=array("Q", removed).tobytes(),
            tokens_per_s=self._told_speed,
        )
