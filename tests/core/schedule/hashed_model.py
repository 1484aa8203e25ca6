"""A model whose keys and values are hashes of the tokens before them: a page that is not what it should be shows.

It stands for the device in tests of scheduler, cache and pool. Each slot holds a hash of the whole prefix up to its
token; every step checks that the slots of all tokens before its own hold the hashes that they must hold. The sampled
token is a function of the last hash, so what a request generates is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.sequence_pages import SequencePages

MODULUS = (1 << 61) - 1


class HashedModel:
    """Storage of hashes, and the function from a prefix to its next token."""

    def __init__(self, pages: SequencePages, vocab_size: int) -> None:
        self._pages = pages
        self._slots = np.zeros(pages.pool.num_pages * pages.page_size, dtype=np.int64)
        self._vocab_size = vocab_size
        self._last: dict[int, int] = {}

    def run(self, plan: BatchPlan) -> list[int]:
        """Write and check the slots of a plan; return the sampled tokens."""
        sampled = []
        for p in plan.parts:
            known = p.seq.token_ids[: p.end].tolist()
            tokens = known + list(p.drafts)
            tokens += [self._last.get(p.row, -1)] * (p.end - len(tokens))  # one may be in flight
            hashes = np.array(prefix_hashes(tokens), dtype=np.int64)
            places = np.arange(p.end)
            row = self._pages.table[p.row]
            slots = (
                row[places // self._pages.page_size] * self._pages.page_size + places % self._pages.page_size
            )
            self._slots[slots[p.start :]] = hashes[p.start :]
            assert (self._slots[slots] == hashes).all(), "a sequence would read what is not its own"
            for each in p.each if p.samples else ():
                self._last[p.row] = self.next_token(int(hashes[each.end - 1]))
                if p.seq.constraint is not None and p.seq.constraint.forced:
                    self._last[p.row] = p.seq.constraint.forced[0]
                sampled.append(self._last[p.row])
        return sampled

    def next_token(self, last_hash: int) -> int:
        """Return the token that follows a prefix of this hash."""
        return last_hash % self._vocab_size

    def expected(
        self, prompt: Sequence[int], max_tokens: int, stop: Sequence[int], forced: Mapping[int, int]
    ) -> list[int]:
        """Return what a prompt is continued with. Some output tokens, by their place, are forced."""
        tokens = list(prompt)
        while len(tokens) < len(prompt) + max_tokens:
            free = self.next_token(prefix_hashes(tokens)[-1])
            tokens.append(forced.get(len(tokens) - len(prompt), free))
            if tokens[-1] in stop:
                break
        return tokens[len(prompt) :]


def prefix_hashes(tokens: Sequence[int]) -> list[int]:
    """Return the hash of each prefix of tokens."""
    hashes, last = [], 17
    for token in tokens:
        last = (last * 1_000_003 + token + 1) % MODULUS
        hashes.append(last)
    return hashes
