"""Assigns pages to running sequences: from the prefix cache, from the pool, or by eviction.

Who owns the pages of a running sequence (one character per page):

    page table row   [ S S S S S S O O O O . . . . . ]
                       └ shared ─┘ └ own ─┘
    shared   owned by the cache; `cache_node` is locked, so they are not evicted
    own      allocated from the pool for this sequence alone

`publish` gives full own pages to the cache (S grows). If the cache already had a page for the same tokens,
that page replaces the sequence's own, which is freed. `release` publishes the full pages, frees the rest, and
unlocks `cache_node`.

Pages may be freed and given to another sequence while a launched step still reads them: steps run in launch
order, so the new owner writes to the pages only after that step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.media import MediaSpan, shared_length
from llmfw.core.base.step import NO_INTS, NO_PAGES, Ints

from .cache.kv_pool import KVPool, Pages
from .cache.prefix_cache import Match, PrefixCache
from .cache.snapshot_cache import SnapshotCache
from .clean_entries import CleanEntries
from .image_cache import ImageCache
from .sequence import SequenceState
from .sequence_states import SequenceStates
from .sequence_table import Indices, SequenceTable

if TYPE_CHECKING:
    from .plan import BatchPlan


class SequencePages:
    """Holds the page table, and moves pages between pool, cache and sequences. No other class moves pages.

    Args:
        pool: pool of free pages.
        cache: prefix cache, which evicts pages to the same pool.
        max_sequences: number of rows of the page table.
        max_tokens: maximum number of tokens in a sequence.
        images: encoded images; None: the model does not accept images.

    Attributes:
        numbers: table of the numeric fields of all sequences.
        states: snapshots of the sequences' states; None: the cache keeps no snapshots.
        images: encoded images; None: the model does not accept images.
    """

    def __init__(
        self,
        pool: KVPool,
        cache: PrefixCache,
        max_sequences: int,
        max_tokens: int,
        images: ImageCache | None = None,
    ) -> None:
        self.pool = pool
        self.cache = cache
        self.images = images
        self.numbers = SequenceTable()
        self.page_size = pool.page_size
        self.states = SequenceStates(cache, pool.page_size) if isinstance(cache, SnapshotCache) else None
        self.table = np.zeros((max_sequences, -(-max_tokens // pool.page_size)), dtype=np.int32)
        self._clean = CleanEntries(max_sequences)
        self._free_rows = list(range(max_sequences - 1, -1, -1))

    @property
    def num_available_tokens(self) -> int:
        """Capacity in tokens of the free and evictable pages."""
        return (self.pool.num_free + self.cache.num_evictable_pages) * self.page_size

    @property
    def num_total_tokens(self) -> int:
        """Capacity in tokens of all pages."""
        return self.pool.num_pages * self.page_size

    @property
    def num_used_tokens(self) -> int:
        """Capacity in tokens of the pages that running sequences or pins hold, counting shared pages once."""
        return self.num_total_tokens - self.num_available_tokens

    def num_held_tokens(self, sequences: Iterable[SequenceState]) -> int:
        """Return the capacity in tokens of the pages of these sequences, counting shared pages once."""
        own, shared = 0, dict[int, int]()
        for seq in sequences:
            own += seq.num_pages - seq.num_shared_pages
            node = seq.cache_node
            while node is not None and id(node) not in shared:
                shared[id(node)] = len(node.pages)
                node = node.parent
        return (own + sum(shared.values())) * self.page_size

    def subscribe(self, seq: SequenceState) -> None:
        """Start tracking how much of a sequence is cached (`num_cached`).

        The sequence's tokens must not change until `unsubscribe`.
        """
        seq.subscription = self.cache.subscribe(
            seq.cache_ids[: seq.num_reusable], seq.request.cache_salt, seq.index
        )
        self.numbers.num_cached[seq.index] = seq.subscription.num_tokens

    def unsubscribe(self, seq: SequenceState) -> None:
        """Undo `subscribe`, if it was called."""
        if seq.subscription is not None:
            self.cache.unsubscribe(seq.subscription)
            seq.subscription = None

    def take_moved(self) -> None:
        """Update `num_cached` of all sequences with a subscription."""
        moved = self.cache.take_moved()
        if moved:
            self.numbers.num_cached[[subscription.index for subscription in moved]] = [
                subscription.num_tokens for subscription in moved
            ]

    def attach(self, seq: SequenceState) -> None:
        """Give a sequence a row and its cached pages, leaving at least one token to compute."""
        match = self._match(seq)
        self.cache.lock(match.node)
        seq.row = self._free_rows.pop()
        seq.is_new = 1
        self._take(seq, match)

    def count_found(self, seq: SequenceState) -> None:
        """Update the cache's hit statistics for a sequence that was just admitted."""
        assert seq.cache_node is not None
        self.cache.count(seq.cache_node, seq.num_computed, seq.num_reusable)

    def num_new_pages(self, seq: SequenceState, num_tokens: int) -> int:
        """Return how many pages `extend` would add."""
        return max(0, -(-num_tokens // self.page_size) - seq.num_pages)

    def extend(self, seq: SequenceState, num_tokens: int) -> bool:
        """Give a sequence pages for its first `num_tokens` tokens; return whether there were enough."""
        count = self.num_new_pages(seq, num_tokens)
        missing = count - self.pool.num_free
        if missing > 0 and self.cache.evict(missing) < missing:
            return False
        if count:
            self.table[seq.row, seq.num_pages : seq.num_pages + count] = self.pool.allocate(count)
            seq.num_pages += count
        return True

    def take_changes(self, rows: Ints, lengths: Ints) -> tuple[Ints, Pages]:
        """Return the page table entries that the executor's copy lacks, and count them as copied.

        Args:
            rows: row numbers without repetition: [B].
            lengths: number of tokens in each row: [B].

        Returns:
            The flat indices of the entries (row * width + column), and their pages: [N], [N].
        """
        num_pages = lengths if self.page_size == 1 else -(-lengths // self.page_size)
        changed, places = self._clean.take(rows, num_pages)
        if not len(changed):
            return NO_INTS, NO_PAGES
        return changed * self.table.shape[1] + places, self.table[changed, places]

    def invalidate(self, rows: Ints) -> None:
        """Record that the executor's copy of these rows may be outdated and must be copied again."""
        for row in rows.tolist():
            self._clean.invalidate(row, 0)

    def short(self, indices: Indices) -> Indices:
        """Return the indices of the sequences that need another page for one more token.

        Args:
            indices: table indices of sequences whose pages hold all computed tokens.
        """
        table = self.numbers
        return indices[table.num_pages[indices] * self.page_size <= table.num_computed[indices]]

    def extend_each(self, short: Indices) -> None:
        """Give each of these sequences one more page.

        The caller must ensure that enough pages are available.
        """
        if not len(short):
            return
        missing = len(short) - self.pool.num_free
        if missing > 0:
            freed = self.cache.evict(missing)
            assert freed >= missing, "pages were counted as available that are not"
        table = self.numbers
        self.table[table.row[short], table.num_pages[short]] = self.pool.allocate(len(short))
        table.num_pages[short] += 1

    def advance(self, seq: SequenceState) -> None:
        """Give a sequence the pages cached since `attach`.

        The sequence must not have computed any tokens itself.
        """
        assert seq.num_pages == seq.num_shared_pages
        assert seq.cache_node is not None
        match = self._match(seq)
        num_more = (len(match.pages) - seq.num_pages) * self.page_size
        if num_more > 0:
            self.cache.count(match.node, num_more, 0, above=seq.cache_node)
            self._exchange(seq, match)

    def withdraw(self, plan: BatchPlan) -> None:
        """Record that a step failed. The data that the step would have copied and computed does not count."""
        self.invalidate(plan.rows)
        if self.images is not None:
            self.images.forget(plan.step.images)
        if self.states is not None:
            for seq in self.states.withdraw(plan):
                self._exchange(seq, self._match(seq))

    def num_freed_tokens(self, seq: SequenceState) -> int:
        """Return the capacity in tokens of the pages that become available if a running sequence is released.

        These pages become free or evictable.
        """
        count = seq.num_pages - seq.num_shared_pages
        node = seq.cache_node
        while node is not None and node.locks == 1:
            count += len(node.pages)
            node = node.parent
        return count * self.page_size

    def num_shared_tokens(self, seq: SequenceState) -> int:
        """Return how many of a running sequence's tokens are in pages of the cache."""
        return seq.num_shared_pages * self.page_size

    def publish(self, seq: SequenceState, num_tokens: int) -> None:
        """Give the full pages of a sequence's first `num_tokens` tokens to the cache.

        The tokens must be computed.
        """
        if seq.media is not None:
            num_tokens = self._publishable(seq, seq.media.spans, num_tokens)
        num_full = num_tokens // self.page_size
        if num_full <= seq.num_shared_pages:
            return
        row = self._row(seq)[:num_full]
        node, pages = self.cache.insert(
            seq.cache_ids[: num_full * self.page_size], row, seq.request.cache_salt
        )
        own, theirs = row[seq.num_shared_pages : len(pages)], pages[seq.num_shared_pages :]
        others = np.flatnonzero(own != theirs)
        if len(others):
            self.pool.free(own[others])
            self._clean.invalidate(seq.row, seq.num_shared_pages + int(others[0]))
        row[: len(pages)] = pages
        assert seq.cache_node is not None
        self.cache.lock(node)
        self.cache.unlock(seq.cache_node)
        seq.cache_node = node
        seq.num_shared_pages = len(pages)

    def release(self, seq: SequenceState, *, is_cached: bool = True) -> None:
        """Free a sequence's row and pages.

        Args:
            is_cached: whether to publish the sequence's full pages of computed tokens; if not, only the pages
                that are already in the cache stay there.
        """
        if is_cached:
            self.publish(seq, min(seq.num_computed, seq.num_tokens))
        if self.images is not None:
            self.images.release(seq)
        if self.states is not None:
            self.states.release(seq, is_cached=is_cached)
        assert seq.cache_node is not None
        self.pool.free(self._row(seq)[seq.num_shared_pages :])
        self.cache.unlock(seq.cache_node)
        self._free_rows.append(seq.row)
        seq.cache_node = None
        seq.row = -1
        seq.num_pages = seq.num_shared_pages = seq.num_computed = 0

    def check_nothing_leaked(self) -> None:
        """Assert that no page, row or state snapshot leaked.

        Every page must be free, evictable or pinned, and every row must be free. Call it only if no sequence
        runs.
        """
        assert self.pool.num_free + self.cache.num_pages == self.pool.num_pages, "pages leaked"
        num_locked = self.cache.num_pages - self.cache.num_evictable_pages
        assert num_locked == self.cache.num_kept_pages, "a lock was left on the prefix cache"
        assert len(self._free_rows) == len(self.table), "a page table row leaked"
        if self.states is not None:
            self.states.check_nothing_leaked()

    def _match(self, seq: SequenceState) -> Match:
        ids, salt = seq.cache_ids[: seq.num_reusable], seq.request.cache_salt
        found = self.cache.match(ids, salt)
        if seq.media is None:
            return found
        length = len(found.pages) * self.page_size
        certain = shared_length(seq.media.spans, length, self.page_size)
        return found if certain == length else self.cache.match(ids[:certain], salt)

    def _publishable(self, seq: SequenceState, spans: Sequence[MediaSpan], num_tokens: int) -> int:
        """Return how many of the first `num_tokens` tokens of a sequence with images may be given to the cache.

        These tokens must not end within the first positions of an image. The cache must not hold pages for
        these tokens that may belong to another image.
        """
        num_tokens = shared_length(spans, num_tokens, self.page_size)
        found = self.cache.match_length(seq.cache_ids[:num_tokens], seq.request.cache_salt)
        certain = shared_length(spans, found, self.page_size)
        return num_tokens if certain == found else certain

    def _exchange(self, seq: SequenceState, match: Match) -> None:
        """Replace the pages of a sequence that has not computed anything with the pages of another match."""
        assert seq.cache_node is not None
        self.cache.lock(match.node)
        self.cache.unlock(seq.cache_node)
        self._take(seq, match)

    def _take(self, seq: SequenceState, match: Match) -> None:
        """Let a sequence start from a match whose node is locked: write the cache's pages into its row."""
        seq.cache_node, pages = match.node, match.pages
        if self.states is not None:
            self.states.begin(seq, match)
        seq.num_pages = seq.num_shared_pages = len(pages)
        seq.num_computed = len(pages) * self.page_size
        self.table[seq.row, : len(pages)] = pages
        self._clean.invalidate(seq.row, 0)

    def _row(self, seq: SequenceState) -> Pages:
        return self.table[seq.row, : seq.num_pages]
