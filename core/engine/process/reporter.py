"""Makes the reports of an engine to the process that routes requests to it: what its prefix cache holds, and how fast it computes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from llmfw.core.base.engine_info import EngineReport
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.schedule.cache.cache_journal import CacheJournal

FADING = 0.95
"""Factor on the figures of earlier steps at each step that computes tokens of prompts."""

NEWS = 1.1
"""Ratio of two speeds from which a change of speed alone is reported."""


class PrefillMeter:
    """Measures how many prompt tokens are computed per second of the steps that compute any.

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
        """Return a report that needs none before it."""
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
