"""Lets sequences wait for a common prefix that another one computes.

The one that computes leads. Those that follow run, and compute nothing until the prefix is in the cache. So requests that
come together with one long prefix compute it once.
"""

from __future__ import annotations

from .sequence import SequenceState, Status
from .sequence_pages import SequencePages

LEAST_FOLLOWED = 32
"""A sequence starts to follow another one only where that saves it at least as many tokens: it may lose a step by it."""


class PrefixLeaders:
    """Says which sequences follow others.

    Args:
        pages: of all sequences.
    """

    def __init__(self, pages: SequencePages) -> None:
        self._pages = pages

    def follows(self, seq: SequenceState) -> bool:
        """Return whether a sequence waits for tokens that another one computes; give it what came into the cache.

        One that leads goes on: two that wait for each other would wait for ever.
        """
        if seq.watch is None or seq.num_pages > seq.num_shared_pages:
            return False
        if seq.watch.num_tokens > seq.num_computed:
            self._pages.advance(seq)
        if seq.watch.leads:
            return False
        # One that has started to follow goes on to its end.
        least = LEAST_FOLLOWED if seq.status is Status.WAITING else 1
        return self._pages.cache.num_awaited(seq.watch, _rank(seq)) >= least

    def lead(self, seq: SequenceState) -> None:
        """Note that a sequence computes its prompt."""
        if seq.watch is not None:
            self._pages.cache.lead(seq.watch, _rank(seq))


def _rank(seq: SequenceState) -> int:
    """Return how a sequence ranks: a live one does not wait for what a deferrable one computes, which may pause."""
    return 1 if seq.request.deferrable else 2
