"""Takes and uses snapshots of sequences' states, for models whose layers keep states.

    prompt    [ cached ........ S ....... M ........... E ..... ]    S  the sequence starts here
    computed                    ( ........................... ]     M  the prompt diverges from others here
                                                                    E  the last tokens of the prompt start

Snapshots are taken at positions from which a later sequence may start: where the prompt diverges from cached
prompts without a snapshot; before the prompt's end; at the ends of pinned prefixes; where a sequence that
waits for this one will start; and when the sequence leaves its row. Each snapshot has a slot of the
`StateStorage` beyond the rows. Each step lists its copies (`StateCopies`), and the copies happen in the order
of the steps. So a slot or a row may be given to another owner while a launched step still uses it.

A snapshot taken during a step joins the prefix cache when the step is committed. If a sequence leaves its
row, the snapshot of the row joins the cache at once. The next step copies the snapshot before any other work,
so nothing changes the row before the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.step import NO_COPIES, NO_INTS, Ints, StateCopies

from .cache.snapshot_cache import SnapshotCache

if TYPE_CHECKING:
    from .cache.prefix_cache import Match, Subscription
    from .cache.snapshot_slots import Snapshot
    from .plan import BatchPlan
    from .sequence import SequenceState

LEAST_SAVED = 16
"""A snapshot is taken only if it saves at least this many tokens: computing fewer tokens takes little longer
than a step with one token, and another snapshot may need the slot."""

LEAST_OWN = 64
"""A snapshot before a prompt's own end is taken only if it saves at least this many tokens. The snapshot
needs one more call of each module with states, on one token. A prompt of 20 tokens then takes 1.16 times as
long, and a prompt of 80 tokens 1.01 to 1.06 times as long."""

LONG = 2048
LONG_END = 16
"""If a prompt computes at least `LONG` tokens, the snapshot is taken this many tokens before the prompt's
end; otherwise, before the last token. The next turn of a chat can then start from the snapshot even if the
template omits the end of this prompt, such as the mark at which reasoning starts. Modules may compute these
few tokens as slowly as 256 tokens, which would slow down a shorter prompt too much."""


class SequenceStates:
    """Takes snapshots of sequences' states, and starts sequences from them.

    Args:
        cache: prefix cache that keeps the snapshots.
        page_size: tokens in a page. Sequences start at whole pages.
    """

    def __init__(self, cache: SnapshotCache, page_size: int) -> None:
        self._cache = cache
        self._page_size = page_size
        self._held: dict[SequenceState, Snapshot] = {}  # snapshots from which sequences will start
        self._wanted: dict[SequenceState, set[int]] = {}  # positions at which to take snapshots
        self._launched: dict[SequenceState, set[int]] = {}  # positions of snapshots in uncommitted steps
        self._left: list[tuple[int, int]] = []  # row and slot of each snapshot that the next step must copy
        self._spoiled: set[int] = set()  # rows whose states may be wrong because a step failed

    def begin(self, seq: SequenceState, match: Match) -> None:
        """Let a sequence start from its match, and choose where to take snapshots.

        Called again if the match changes before the sequence has computed anything.
        """
        self._let_go(seq)
        start = len(match.pages) * self._page_size
        if (snapshot := match.node.snapshot) is not None and start:
            snapshot.num_holds += 1
            self._held[seq] = snapshot
        last, chosen = start, set[int]()
        for position in sorted(self._useful(seq)):
            if position - last >= LEAST_SAVED:
                chosen.add(position)
                last = position
        own = self._own_end(seq, start)
        if own - start >= LEAST_OWN and not any(abs(each - own) < LEAST_SAVED for each in chosen):
            chosen.add(own)
        if chosen:
            self._wanted[seq] = chosen
        else:
            self._wanted.pop(seq, None)

    def leader(self, subscription: Subscription, rank: int) -> tuple[Subscription, int] | None:
        """Return the leader that shares most of a subscription's tokens (see `SnapshotCache.leader`)."""
        return self._cache.leader(subscription, rank)

    def promises(self, seq: SequenceState, position: int) -> bool:
        """Plan a snapshot at a position of a prompt, unless the sequence has already computed that position.

        Returns:
            Whether a snapshot will be taken at the position, provided that a slot is available then.
        """
        if position in self._launched.get(seq, ()):
            return True
        if seq.num_computed >= position:
            return False
        self._wanted.setdefault(seq, set()).add(position)
        return True

    def parting_with(self, seq: SequenceState, least: int) -> list[SequenceState]:
        """Return the sequences that will take a snapshot where `seq` diverges from the cached prefixes.

        Args:
            seq: sequence that has not computed anything.
            least: minimum number of tokens that the snapshot must save the sequence.
        """
        ids, salt = seq.cache_ids[: seq.num_reusable], seq.request.cache_salt
        position = self._cache.cached_length(ids, salt)
        if position - seq.num_computed < least or position not in self._wanted.get(seq, ()):
            return []
        return [
            other
            for other in {**self._wanted, **self._launched}
            if other is not seq
            and other.request.cache_salt == salt
            and (position in self._launched.get(other, ()) or position in self._wanted.get(other, ()))
            and np.array_equal(other.cache_ids[:position], ids[:position])
        ]

    def take_copies(
        self, sequences: Sequence[SequenceState], num_decoding: int, rows: Ints, starts: Ints, counts: Ints
    ) -> StateCopies:
        """Return the copies of the next step, and reserve slots for its snapshots.

        Args:
            sequences: sequences of the step; may be empty if all decode.
            num_decoding: number of sequences that decode, which come first.
            rows, starts, counts: columns as in `StepInput`: [B].
        """
        moved, self._left = self._left, []
        taken: list[tuple[int, int, int]] = []  # place, position, slot
        for place in range(num_decoding, len(sequences)):
            seq, start = sequences[place], int(starts[place])
            if (snapshot := self._held.get(seq)) is not None:
                self._let_go(seq)
                self._cache.count_use(snapshot)
                moved.append((snapshot.slot, int(rows[place])))
            wanted = self._wanted.get(seq, set())
            for position in sorted(each for each in wanted if start < each <= start + int(counts[place])):
                wanted.discard(position)
                if (slot := self._cache.reserve_slot()) is not None:
                    self._launched.setdefault(seq, set()).add(position)
                    taken.append((place, position, slot))
            if not wanted:
                self._wanted.pop(seq, None)
        if not moved and not taken:
            return NO_COPIES
        return StateCopies(*_columns(moved, 2), *_columns(taken, 3))

    def commit(self, plan: BatchPlan, broken: Mapping[str, object]) -> None:
        """Add a step's snapshots to the cache; drop the snapshots of broken requests.

        The pages of running sequences must be published up to the snapshots' positions.
        """
        for seq, position, slot in taken_in(plan):
            self._land(seq, position)
            if seq.id in broken:
                self._cache.slots.free(slot)
            else:
                self._cache.attach(seq.cache_ids[:position], seq.request.cache_salt, slot)

    def withdraw(self, plan: BatchPlan) -> list[SequenceState]:
        """Undo the copies of a failed step: the snapshots and rows that they would have written are invalid.

        Returns:
            Sequences that wait to start from a snapshot that was not copied. They must `begin` again.
        """
        self._spoiled.update(plan.rows.tolist())
        for seq, position, slot in taken_in(plan):
            self._land(seq, position)
            self._cache.slots.free(slot)
        for slot in plan.step.states.targets.tolist():
            if (snapshot := self._cache.slots.in_slot(slot)) is not None:
                self._cache.drop(snapshot)
        return [seq for seq, snapshot in self._held.items() if not snapshot.is_valid]

    def release(self, seq: SequenceState, *, is_cached: bool) -> None:
        """Take a snapshot of a sequence that leaves its row, if that is useful.

        Args:
            is_cached: whether the pages of its computed tokens have been published, up to `cache_node`.
        """
        is_right = seq.row not in self._spoiled and not seq.is_new
        self._spoiled.discard(seq.row)
        self._let_go(seq)
        self._wanted.pop(seq, None)
        node, num_tokens = seq.cache_node, seq.num_computed
        if not (is_cached and is_right and num_tokens == seq.num_shared_pages * self._page_size):
            return
        if node is None or node.snapshot is not None or self._cache.num_saved(node, num_tokens) < LEAST_SAVED:
            return
        if (slot := self._cache.reserve_slot()) is not None:
            self._cache.attach_to(node, num_tokens, slot)
            self._left.append((seq.row, slot))

    def check_nothing_leaked(self) -> None:
        """Assert that no slot leaked. Call it only if no sequence runs, and no step is launched."""
        open_ = [*self._held, *self._wanted, *self._launched]
        assert not open_, "a sequence that has ended still has snapshots"
        self._cache.check_snapshots()

    def _useful(self, seq: SequenceState) -> set[int]:
        """Return the positions from which other sequences may start.

        These are the position where the sequence diverges from the cached prefixes, and the ends of pins.
        """
        ids, salt = seq.cache_ids, seq.request.cache_salt
        parting = self._cache.cached_length(ids[: seq.num_reusable], salt)
        last = (seq.num_tokens - 1) // self._page_size * self._page_size
        return {parting, *self._cache.kept_lengths(ids[:last], salt)}

    def _own_end(self, seq: SequenceState, start: int) -> int:
        """Return the position, in whole pages, of the snapshot for the same prompt and the next turn."""
        num_last = LONG_END if seq.num_tokens - start >= LONG else 1
        return (seq.num_tokens - num_last) // self._page_size * self._page_size

    def _let_go(self, seq: SequenceState) -> None:
        if (snapshot := self._held.pop(seq, None)) is not None:
            snapshot.num_holds -= 1

    def _land(self, seq: SequenceState, position: int) -> None:
        positions = self._launched[seq]
        positions.discard(position)
        if not positions:
            del self._launched[seq]


def taken_in(plan: BatchPlan) -> list[tuple[SequenceState, int, int]]:
    """Return the sequence, position and slot of each snapshot that a step takes while it computes."""
    copies = plan.step.states
    columns = (copies.places.tolist(), copies.positions.tolist(), copies.slots.tolist())
    return [(plan.sequences[place], position, slot) for place, position, slot in zip(*columns, strict=True)]


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Ints]:
    """Return the columns of a table of integers."""
    if not rows:
        return [NO_INTS] * width
    return list(np.array(rows, dtype=np.int64).T.copy())
