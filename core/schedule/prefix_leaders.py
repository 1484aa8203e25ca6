"""Lets sequences wait for a common prefix that another sequence computes.

The computing sequence is the leader. Its followers run, but compute nothing until the prefix is in the cache.
So simultaneous requests with a common long prefix compute it only once.
"""

from __future__ import annotations

from .cache.prefix_cache import Subscription
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages
from .sequence_states import SequenceStates

LEAST_FOLLOWED = 32
"""Minimum number of tokens that a sequence must save to follow another one. Following may cost a step."""


class PrefixLeaders:
    """Decides which sequences follow others.

    Args:
        pages: pages of all sequences.
    """

    def __init__(self, pages: SequencePages) -> None:
        self._pages = pages

    def follows(self, seq: SequenceState) -> bool:
        """Return whether a sequence should wait for tokens that another sequence is computing.

        First gives the sequence the pages that were cached since `SequencePages.attach`. A leader never
        follows another sequence, because two sequences that wait for each other would wait forever.
        """
        if seq.subscription is None or seq.num_pages > seq.num_shared_pages:
            return False
        if seq.subscription.num_tokens > seq.num_computed:
            self._pages.advance(seq)
        if seq.subscription.leads:
            return False
        # A sequence that already follows continues until the last shared token.
        least = LEAST_FOLLOWED if seq.status is Status.WAITING else 1
        if self._pages.states is None:
            return self._pages.cache.num_awaited(seq.subscription, _rank(seq)) >= least
        return self._awaits_state(self._pages.states, seq, seq.subscription, least)

    def _awaits_state(
        self, states: SequenceStates, seq: SequenceState, subscription: Subscription, least: int
    ) -> bool:
        """Return whether a leader will take a snapshot of its states from which a sequence can start.

        The leader either computes the sequence's next tokens, or diverges from the cached tokens at the same
        position as the sequence.
        """
        rank = _rank(seq)
        found = states.leader(subscription, rank)
        if found is None:
            subscriptions = (other.subscription for other in states.parting_with(seq, least))
            return any(each is not None and each.leads >= rank for each in subscriptions)
        leader, position = found
        if position - seq.num_computed < least:
            return False
        return states.promises(self._pages.numbers.at(leader.index), position)

    def lead(self, seq: SequenceState) -> None:
        """Record that a sequence computes its prompt and may be followed."""
        if seq.subscription is not None:
            self._pages.cache.lead(seq.subscription, _rank(seq))


def _rank(seq: SequenceState) -> int:
    """Return a sequence's rank as a leader.

    Live sequences rank higher, so they never wait for a deferrable sequence, which may be paused.
    """
    return 1 if seq.request.deferrable else 2
