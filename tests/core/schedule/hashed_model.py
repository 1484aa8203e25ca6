"""A model whose keys and values are hashes of the tokens before them: a page that is not what it should be shows.

It stands for the device in tests of scheduler, cache and pool. Each slot holds a hash of the whole prefix up to its
token; every step checks that the slots of all tokens before its own hold the hashes that they must hold. The sampled
token is a function of the last hash, so what a request generates is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from llmfw.core.base.step import NOT_IN_FLIGHT, StepInput, decode, encode
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.sequence_pages import SequencePages

MODULUS = (1 << 61) - 1
SEED = 17


class HashedModel:
    """An executor of hashes: it has a page table and last tokens of its own, and reads nothing but a `StepInput`.

    Only what it checks its slots against comes from the sequences themselves. If states are kept, each slot of theirs
    holds the length and the hash of a prefix: it is a storage of states that tells one state from another.
    """

    def __init__(self, pages: SequencePages, vocab_size: int) -> None:
        self._page_size = pages.page_size
        self._table = np.full_like(pages.table, -1)
        self._slots = np.zeros(pages.pool.num_pages * pages.page_size, dtype=np.int64)
        self._vocab_size = vocab_size
        self._last: dict[int, int] = {}
        self._hashed: dict[str, tuple[list[int], list[int]]] = {}
        self._keeps_states = pages.states is not None
        self._states: dict[int, tuple[int, int]] = {}  # length and hash of a prefix, by slot

    def run(self, plan: BatchPlan) -> list[int]:
        """Write and check the slots of a plan; return the sampled tokens."""
        step = decode(encode(plan.step), StepInput)
        self._table.reshape(-1)[step.page_places] = step.pages
        tokens = [
            self._last[source] if source != NOT_IN_FLIGHT else token
            for token, source in zip(step.tokens.tolist(), step.sources.tolist(), strict=True)
        ]
        sampled: list[int] = []
        first = 0
        for source, target in zip(step.states.sources.tolist(), step.states.targets.tolist(), strict=True):
            self._states[target] = self._states[source]
        for place, (seq, row, start, count, num) in enumerate(
            zip(
                plan.sequences,
                step.rows.tolist(),
                step.starts.tolist(),
                step.counts.tolist(),
                step.num_sampled.tolist(),
                strict=True,
            )
        ):
            own = tokens[first : first + count]
            first += count
            known = list(seq.tokens(start, start + count))
            assert own[: len(known)] == known, "a step has tokens that are not the sequence's"
            whole = [*seq.token_ids[:start].tolist(), *own][: start + count]
            hashes = np.array(self._hashes_of(seq.id, whole), dtype=np.int64)
            places = np.arange(start + count)
            slots = self._table[row][places // self._page_size] * self._page_size + places % self._page_size
            self._slots[slots[start:]] = hashes[start:]
            assert (self._slots[slots] == hashes).all(), "a sequence would read what is not its own"
            if self._keeps_states:
                self._change_states(step, place, hashes.tolist())
            for end in range(start + count - num, start + count):
                self._last[row] = self.next_token(int(hashes[end]))
                if seq.constraint is not None and seq.constraint.forced:
                    self._last[row] = seq.constraint.forced[0]
                sampled.append(self._last[row])
        return sampled

    def _change_states(self, step: StepInput, place: int, hashes: list[int]) -> None:
        """Check the state from which a sequence continues; write the one after it, and those copied in passing."""
        row, start = int(step.rows[place]), int(step.starts[place])
        if start:
            assert self._states[row] == (start, hashes[start - 1]), "a sequence continues from a wrong state"
        for index in np.flatnonzero(step.states.places == place).tolist():
            position, slot = int(step.states.positions[index]), int(step.states.slots[index])
            assert start < position <= len(hashes), "a state is copied that the step does not compute"
            self._states[slot] = position, hashes[position - 1]
        self._states[row] = len(hashes), hashes[-1]

    def next_token(self, last_hash: int) -> int:
        """Return the token that follows a prefix of this hash."""
        return last_hash % self._vocab_size

    def expected(
        self, prompt: Sequence[int], max_tokens: int, stop: Sequence[int], forced: Mapping[int, int]
    ) -> list[int]:
        """Return what a prompt is continued with. Some output tokens, by their place, are forced."""
        output: list[int] = []
        [*_, last] = prefix_hashes(prompt)
        while len(output) < max_tokens:
            output.append(forced.get(len(output), self.next_token(last)))
            if output[-1] in stop:
                break
            [last] = prefix_hashes(output[-1:], last)
        return output

    def _hashes_of(self, name: str, tokens: list[int]) -> list[int]:
        """Return the hash of each prefix; those of the tokens that this sequence had in its last step are kept."""
        before, hashes = self._hashed.get(name, ([], []))
        if tokens[: len(before)] != before:
            before, hashes = [], []
        hashes = hashes + prefix_hashes(tokens[len(before) :], hashes[-1] if hashes else SEED)
        self._hashed[name] = (tokens, hashes)
        return hashes


def prefix_hashes(tokens: Sequence[int], last: int = SEED) -> list[int]:
    """Return the hash of each prefix of tokens that follow a prefix whose hash is `last`."""
    hashes = []
    for token in tokens:
        last = (last * 1_000_003 + token + 1) % MODULUS
        hashes.append(last)
    return hashes
