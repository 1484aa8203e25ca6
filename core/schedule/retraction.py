"""Retraction: takes the pages of running sequences if the pool is full or others should run instead."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from .adapter_gate import AdapterGate
from .deferral import Lane
from .new_token_ratio import MAX_NEW_TOKENS_COUNTED
from .policy_adapter import PolicyAdapter
from .sequence import SequenceState
from .sequence_pages import SequencePages
from .sequence_table import Indices
from .trace import DecisionTrace

logger = logging.getLogger(__name__)

RETRACT_DECODE_STEPS = 20
"""A retraction frees pages for this many further tokens of each remaining sequence, as in SGLang."""


class Retraction:
    """Retracts running sequences: they lose their pages, keep their tokens, and wait again.

    Args:
        pages: pages of all sequences.
        live, deferrable: the sequences of each class (see `deferral`).
        adapter: calls the policy.
        gate: says whether a waiting sequence's adapter lets it start.
        places: maximum number of running sequences.
        trace: receives each retraction; None: retractions are not traced.

    Attributes:
        num_retractions: number of retractions since start.
    """

    def __init__(
        self,
        pages: SequencePages,
        live: Lane,
        deferrable: Lane,
        adapter: PolicyAdapter,
        gate: AdapterGate,
        places: int,
        trace: DecisionTrace | None,
    ) -> None:
        self.num_retractions = 0
        self._pages = pages
        self._table = pages.numbers
        self._live = live
        self._deferrable = deferrable
        self._adapter = adapter
        self._gate = gate
        self._places = places
        self._trace = trace

    def make_room(
        self, lane: Lane, decoding: Indices, pieces: dict[SequenceState, int]
    ) -> tuple[Indices, bool]:
        """Retract sequences until the step's remaining sequences have enough pages.

        For the live lane, deferrable sequences are retracted first. At least one of the step's sequences is
        never retracted; this sequence may still have to wait for the pages of a sequence whose last token is
        in flight. Sequences that hold pages but are not in this step may be retracted, too.

        Args:
            lane: lane (live or deferrable) of the step's sequences.
            decoding: table indices of the decoding sequences.
            pieces: number of prompt tokens of each prefilling sequence. Retracted sequences are removed from
                this dict.

        Returns:
            The table indices of the sequences that still decode, which now have their pages; and whether
            there were too few pages for all of the step's sequences in this lane.
        """
        wanted: dict[SequenceState, int] | None = None
        short = self._pages.short(decoding)
        needed = len(short) * self._pages.page_size + self._needed(pieces)
        while needed > self._pages.num_available_tokens:
            if not self.give_way(lane):
                wanted = dict.fromkeys(self._table.sequences(decoding), 1) | pieces
                break
        if wanted is None:
            self._pages.extend_each(short)
            return decoding, False
        self._retract_until_it_fits(lane, wanted)
        for seq in pieces.keys() - wanted.keys():
            del pieces[seq]
        still = [
            seq.index for seq in wanted if seq not in pieces and self._pages.extend(seq, seq.num_computed + 1)
        ]
        return np.array(still, dtype=np.intp), True

    def give_way(self, lane: Lane) -> bool:
        """Retract a deferrable sequence for the live lane; return whether one was retracted.

        For the deferrable lane, do nothing and return False.
        """
        deferrable = self._deferrable
        if lane is deferrable or not deferrable.num_running:
            return False
        self._retract(
            deferrable, self._adapter.retraction_order(deferrable)[0], "live requests need its place or pages"
        )
        return True

    def retract(self, lane: Lane, victims: Iterable[SequenceState], reason: str) -> None:
        """Retract these running sequences of a lane."""
        for victim in victims:
            self._retract(lane, victim, reason)

    def preempt(self, lane: Lane) -> None:
        """Retract running sequences for the first waiting live one, if the waiting one does not fit.

        The policy and the API keys' shares of the rows determine which sequences may be retracted (see
        `SchedulePolicy.give_way` and `turns.above_share`).
        """
        if not (lane is self._live and lane.num_waiting and lane.num_running):
            return
        policy = self._adapter.policy
        if not (policy.preempts or (self._adapter.has_shares and lane.num_running >= self._places)):
            return
        first = self._adapter.first(lane)
        if first.num_in_flight or not self._gate.admits(first) or self._would_fit(lane, first, []):
            return
        if policy.preempts and self._make_go(lane, first, self._adapter.give_way(lane, first)):
            return
        if self._adapter.has_shares:
            self._make_go(lane, first, self._adapter.above_share(lane, first))

    def _make_go(self, lane: Lane, first: SequenceState, candidates: Iterable[SequenceState]) -> bool:
        """Retract candidates until `first` fits.

        If retracting all would not suffice, retract none and return False.
        """
        victims: list[SequenceState] = []
        for victim in candidates:
            if not victim.awaits_end:
                victims.append(victim)
                if self._would_fit(lane, first, victims):
                    break
        else:
            return False
        for victim in victims:
            self._retract(lane, victim, f"{first.id} goes first")
        return True

    def _would_fit(self, lane: Lane, seq: SequenceState, without: list[SequenceState]) -> bool:
        """Return whether a waiting sequence would fit after the sequences in `without` are retracted."""
        staying = [each for each in lane.running if each not in without]
        if len(staying) >= self._places:
            return False
        if not staying:
            return True
        freed = sum(self._pages.num_freed_tokens(each) for each in without)
        available = self._pages.num_available_tokens + freed
        if self._deferrable.num_running:
            available += self._pages.num_held_tokens(self._deferrable.running)
        indices = np.array([each.index for each in staying], dtype=np.intp)
        reserved = lane.ratio.expected_tokens(self._table, indices, self._pages.page_size)
        to_store = seq.length - int(self._table.num_cached[seq.index])
        return to_store + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED) <= available - reserved

    def _retract_until_it_fits(self, lane: Lane, wanted: dict[SequenceState, int]) -> None:
        first_to_go = self._adapter.retraction_order(lane)
        stays = next(seq for seq in reversed(first_to_go) if seq in wanted)
        num_retracted = 0
        for victim in first_to_go:
            if self._needed(wanted) + RETRACT_DECODE_STEPS * len(wanted) <= self._pages.num_available_tokens:
                break
            if victim is not stays and not victim.awaits_end:
                wanted.pop(victim, None)
                self._retract(lane, victim, "the pool is full")
                num_retracted += 1
        if num_retracted:
            before, after = lane.ratio.correct(lane.running)
            logger.info(
                "Decode out of memory happened. #retracted_reqs: %d, #new_token_ratio: %.4f -> %.4f",
                *(num_retracted, before, after),
            )

    def _retract(self, lane: Lane, seq: SequenceState, reason: str) -> None:
        self._pages.release(seq)
        self._pages.unsubscribe(seq)
        lane.stop(seq)
        self._pages.subscribe(seq)
        self.num_retractions += 1
        if self._trace is not None:
            self._trace.retracted(seq, reason)

    def _needed(self, wanted: dict[SequenceState, int]) -> int:
        pages = self._pages
        if not wanted:
            return 0
        needed = (pages.num_new_pages(seq, seq.num_computed + count) for seq, count in wanted.items())
        return sum(needed) * pages.page_size
