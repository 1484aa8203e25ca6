"""A copy of what an engine has reported about its prefix cache and its speed."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Sequence

from llmfw.core.base.engine_info import EngineReport

from .prefix_index import PrefixIndex

logger = logging.getLogger(__name__)


class CacheMirror:
    """Holds the hashes of the prefixes that an engine has cached, as of its last report.

    The mirror has one entry per block of tokens in the engine's cache. If a report is missing, the mirror
    forgets all entries and asks for a whole report. Until the whole report comes, the mirror has no entries.

    Args:
        ask: function that asks the engine for a whole report; must not block.

    Attributes:
        block: number of tokens in a block; 0: nothing has been reported, or the engine caches no prefixes.
        tokens_per_s: prompt tokens that the engine computes per second; 0.0: not measured yet.
        num_gaps: number of missing reports.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self.block = 0
        self.tokens_per_s = 0.0
        self.num_gaps = 0
        self._ask = ask
        self._held: set[int] = set()
        self._number = 0
        self._waits = False
        self._index: PrefixIndex | None = None
        self._engine = 0

    def __len__(self) -> int:
        return len(self._held)

    def take(self, report: EngineReport) -> None:
        """Apply a report."""
        self.tokens_per_s = report.tokens_per_s
        if report.is_whole:
            self._replace(set(array("Q", report.added)))
            self._waits = False
        elif self._waits:
            return
        elif report.number != self._number + 1:
            self._note_gap(report)
            return
        else:
            self._change(array("Q", report.removed), array("Q", report.added))
        self.block, self._number = report.block, report.number

    @property
    def is_published(self) -> bool:
        """Whether an index has the prefixes of this engine."""
        return self._index is not None

    def publish(self, index: PrefixIndex, engine: int) -> None:
        """Add this engine's prefixes to an index, and keep them up to date until `withdraw`.

        Args:
            engine: number of the engine.
        """
        self._index, self._engine = index, engine
        index.add(self._held, engine)

    def withdraw(self) -> None:
        """Remove this engine from the index, if it was published."""
        if self._index is not None:
            self._index.remove(self._held, self._engine)
            self._index = None

    def num_matched(self, hashes: Sequence[int]) -> int:
        """Return how many leading blocks of a prompt are cached.

        Args:
            hashes: hash of each prefix of the prompt that ends with a block.
        """
        return num_held(hashes, self._held)

    def _note_gap(self, report: EngineReport) -> None:
        logger.warning(
            "Report %d of an engine came after report %d; asking for a whole report",
            report.number,
            self._number,
        )
        self.num_gaps += 1
        self._replace(set())
        self._waits = True
        self._ask()

    def _replace(self, held: set[int]) -> None:
        if self._index is not None:
            self._index.remove(self._held - held, self._engine)
            self._index.add(held - self._held, self._engine)
        self._held = held

    def _change(self, removed: array[int], added: array[int]) -> None:
        if self._index is not None:
            self._index.remove(removed, self._engine)
            self._index.add(added, self._engine)
        self._held.difference_update(removed)
        self._held.update(added)


def num_held(hashes: Sequence[int], held: Container[int]) -> int:
    """Return the number of leading hashes that are held. After a missing hash, no later one may be held."""
    if not hashes or hashes[0] not in held:  # most engines have cached no part of most prompts
        return 0
    return bisect_left(hashes, True, key=lambda each: each not in held)
