"""Conformance tests of the `Drafter` interface."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from types import FrameType
from typing import Any

import pytest

from llmfw.core.interfaces.drafter import DraftedRequest, Drafter, SequenceDrafter
from llmfw.core.schedule.isolated_drafter import check_draft

LIMIT = 8
MOST_LINES = 3
"""Maximum factor by which the number of Python lines run in a step may grow if the sequence is 30 times as
long."""

MOST_TIME = 6
"""Maximum factor by which the processor time of a step may grow if the sequence is 64 times as long."""
FREE_S = 20e-6
"""Seconds by which the processor time of a step may grow besides: copying 64,000 tokens takes 100 µs."""


class DrafterTests:
    """Conformance tests of a drafter.

    Derive from this class and override the fixture `drafter` (and `vocab_size`, if the default does not fit).
    """

    @pytest.fixture
    def drafter(self) -> Drafter:
        """Return the drafter under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture drafter")

    @pytest.fixture
    def vocab_size(self) -> int:
        """Return the size of the vocabulary.

        The drafter receives only token ids below this size, and must draft only such ids.
        """
        return 1000

    @pytest.fixture
    def reference(self) -> Callable[[Sequence[int], int], Sequence[int]] | None:
        """Return a simple function that computes the draft from all tokens and a limit; None: unknown.

        The function may be slow: it may search the whole sequence for each draft.
        """
        return None

    @pytest.mark.parametrize("num_tokens", [1, 2, 4, 30])
    def test_drafts_equal_the_reference(
        self, drafter: Drafter, vocab_size: int, reference: Any, num_tokens: int
    ) -> None:
        """Tests 80 random texts: some with only a few different tokens, some with repeated phrases."""
        if reference is None:
            pytest.skip(
                "the drafter does not have the capability reference (a function: tokens, limit → draft)"
            )
        rng = random.Random(num_tokens)
        for number in range(80):
            few = [rng.randrange(vocab_size) for _ in range(num_tokens)]
            tokens = [rng.choice(few) for _ in range(rng.choice([2, 5, 25, 200]))]
            if number % 2:
                tokens = draw_tokens("repeating", 200, vocab_size, seed=rng.randrange(1_000))
            sequence, seen = drafter.begin(), 0
            for piece in cut(tokens, seed=rng.randrange(100)):
                sequence.extend(list(piece))
                seen += len(piece)
                limit = rng.randrange(1, LIMIT + 1)
                found = list(islice(sequence.draft(limit), limit + 1))
                assert found == [*reference(tokens[:seen], limit)], (
                    f"the draft of {limit} tokens after {tokens[:seen]}"
                )

    @pytest.mark.parametrize("kind", ["repeating", "random", "one token"])
    def test_a_draft_has_valid_tokens_within_the_limit(
        self, drafter: Drafter, vocab_size: int, kind: str
    ) -> None:
        sequence = drafter.begin()
        for piece in cut(draw_tokens(kind, 200, vocab_size), seed=1):
            sequence.extend(piece)
            for limit in (1, 2, LIMIT):
                found = check_draft(sequence.draft(limit), limit, vocab_size)
                assert len(found) <= limit

    @pytest.mark.parametrize("num", [1, 2, 3])
    def test_the_shortest_prompts_are_accepted(self, drafter: Drafter, vocab_size: int, num: int) -> None:
        for token in (0, vocab_size - 1):
            sequence = drafter.begin()
            sequence.extend([token] * num)
            found = check_draft(sequence.draft(1), 1, vocab_size)
            assert len(found) <= 1

    @pytest.mark.parametrize("kind", ["repeating", "random"])
    def test_a_draft_does_not_depend_on_chunking(self, drafter: Drafter, vocab_size: int, kind: str) -> None:
        """Tokens may arrive one by one or in chunks of any size."""
        tokens = draw_tokens(kind, 120, vocab_size)
        whole = drafted(drafter, [tokens])
        for seed in range(4):
            assert drafted(drafter, cut(tokens, seed)) == whole
        assert drafted(drafter, [[token] for token in tokens]) == whole

    def test_asking_for_a_draft_changes_nothing(self, drafter: Drafter, vocab_size: int) -> None:
        pieces = cut(draw_tokens("repeating", 120, vocab_size), seed=2)
        asked = drafter.begin()
        for piece in pieces:
            asked.extend(piece)
            first = draft_of(asked)
            assert draft_of(asked) == first
        assert draft_of(asked) == drafted(drafter, pieces)

    def test_the_drafter_copies_its_input(self, drafter: Drafter, vocab_size: int) -> None:
        """The given list is not changed, and changing it later does not change drafts."""
        tokens = draw_tokens("repeating", 120, vocab_size)
        sequence, given = drafter.begin(), tokens[:-2]
        sequence.extend(given)
        sequence.draft(LIMIT)
        assert given == tokens[:-2]
        given[:] = [0] * len(given)
        sequence.extend(tokens[-2:])
        assert draft_of(sequence) == drafted(drafter, [tokens])

    def test_sequences_are_drafted_independently(self, drafter: Drafter, vocab_size: int) -> None:
        tokens = draw_tokens("repeating", 90, vocab_size)
        alone = drafted(drafter, [tokens])
        sequence, other = drafter.begin(), drafter.begin()
        sequence.extend(tokens[:-1])
        other.extend(tokens[::-1])
        other.draft(LIMIT)
        sequence.extend(tokens[-1:])
        assert draft_of(sequence) == alone

    @pytest.mark.parametrize("differing", ["tenant", "cache_salt", None])
    def test_no_tokens_of_others_are_drafted(
        self, drafter: Drafter, vocab_size: int, differing: str | None
    ) -> None:
        """Sequences of requests with another tenant or another cache salt do not change a draft.

        If a sequence begins without a request, no other sequence changes its draft.
        """
        known = draw_tokens("random", 60, vocab_size)

        def draft_after(tokens: Sequence[int], value: str) -> list[int]:
            given = {"tenant": "ann", "cache_salt": "salt"} | ({differing: value} if differing else {})
            request = DraftedRequest(tenant_is_key=True, fields={}, **given)
            sequence = drafter.begin_for(request) if differing else drafter.begin()
            sequence.extend(list(tokens))
            return draft_of(sequence)

        alone = draft_after(known[:30], "a")
        for value in "bcd":
            draft_after(known, value)
        assert draft_after(known[:30], "e") == alone, "the draft has changed after sequences of others"

    def test_drafts_stay_the_same_over_sequences(self, drafter: Drafter, vocab_size: int) -> None:
        """The 500th sequence of a drafter gets the same draft as the first, if their tokens are equal."""
        tokens = draw_tokens("repeating", 60, vocab_size)
        first = drafted(drafter, [tokens])
        for number in range(2, 501):
            found = drafted(drafter, [tokens])
            assert found == first, f"sequence {number} has another draft than the first"

    def test_drafts_stay_the_same_over_calls(self, drafter: Drafter, vocab_size: int) -> None:
        """After 1,000 calls of `draft`, a sequence gives the same draft as after one call."""
        tokens = draw_tokens("random", 10, vocab_size) * 100
        asked = drafter.begin()
        for token in tokens:
            asked.extend([token])
            check_draft(asked.draft(LIMIT), LIMIT, vocab_size)
        assert draft_of(asked) == drafted(drafter, [tokens]), "the draft has changed after 1,000 calls"

    def test_step_time_does_not_grow_with_length(self, drafter: Drafter, vocab_size: int) -> None:
        """Finds work that is done outside Python, such as copying or searching the sequence.

        Compares the best of several measurements of processor time for each length.
        """
        short_s, long_s = step_times(drafter, (1000, 64_000), vocab_size)
        assert long_s <= MOST_TIME * short_s + FREE_S, (
            f"a step takes {1e6 * short_s:.0f} µs with 1,000 tokens and {1e6 * long_s:.0f} µs with 64,000"
        )

    def test_step_cost_does_not_grow_with_length(self, drafter: Drafter, vocab_size: int) -> None:
        """Compares executed lines of Python, because time depends on the load of the machine."""
        short, long = (
            num_lines_of_steps(drafter.begin(), draw_tokens("repeating", num, vocab_size))
            for num in (300, 9000)
        )
        assert long <= MOST_LINES * max(short, 40)


def draw_tokens(kind: str, num: int, vocab_size: int, seed: int = 0) -> list[int]:
    """Return `num` token ids.

    Args:
        kind: "one token" (always the same), "random", or "repeating" (a few phrases in random order, with
            other tokens now and then).
        num: number of tokens.
        vocab_size: upper bound of the ids.
        seed: seed of all random choices.
    """
    rng = random.Random(f"{kind} {seed}")
    if kind == "one token":
        return [vocab_size // 2] * num
    if kind == "random":
        return [rng.randrange(vocab_size) for _ in range(num)]
    phrases = [[rng.randrange(vocab_size) for _ in range(rng.randrange(4, 12))] for _ in range(4)]
    found: list[int] = []
    while len(found) < num:
        found += rng.choice(phrases)
        if rng.random() < 0.2:
            found.append(rng.randrange(vocab_size))
    return found[:num]


def cut(tokens: Sequence[int], seed: int) -> list[list[int]]:
    """Split tokens into the pieces that a drafter receives: a long first piece, then a few tokens at a
    time."""
    rng = random.Random(seed)
    first = rng.randrange(1, len(tokens))
    pieces, rest = [list(tokens[:first])], list(tokens[first:])
    while rest:
        size = rng.randrange(1, 6)
        pieces.append(rest[:size])
        rest = rest[size:]
    return pieces


def drafted(drafter: Drafter, pieces: Sequence[Sequence[int]]) -> list[int]:
    """Return the draft of a new sequence that receives its tokens in these pieces."""
    sequence = drafter.begin()
    for piece in pieces:
        sequence.extend(list(piece))
    return draft_of(sequence)


def draft_of(sequence: SequenceDrafter) -> list[int]:
    """Return a sequence's draft, cut after LIMIT + 1 tokens, because a draft may be endless."""
    return list(islice(sequence.draft(LIMIT), LIMIT + 1))


def step_times(drafter: Drafter, lengths: Sequence[int], vocab_size: int) -> list[float]:
    """Return the processor time, in seconds, of a step of a sequence of each length: the best of five.

    Each measurement has steps with tokens that are new to the sequence, and steps that repeat a part of it.
    """
    histories = [draw_tokens("repeating", length, max(vocab_size // 2, 1)) for length in lengths]
    sequences = [drafter.begin() for _ in lengths]
    for sequence, history in zip(sequences, histories, strict=True):
        sequence.extend(list(history))
    rng, best = random.Random(1), [math.inf] * len(lengths)
    for start in range(0, 100, 20):
        new = [rng.randrange(vocab_size // 2, vocab_size) for _ in range(10)]
        for index, (sequence, history) in enumerate(zip(sequences, histories, strict=True)):
            tokens = new + history[start : start + 20]
            before = time.process_time()
            for token in tokens:
                sequence.extend([token])
                draft_of(sequence)
            best[index] = min(best[index], (time.process_time() - before) / len(tokens))
    return best


def num_lines_of_steps(sequence: SequenceDrafter, tokens: Sequence[int], num_steps: int = 20) -> int:
    """Return how many lines of Python run in the last `num_steps` steps.

    Each step adds one token and drafts once.
    """
    sequence.extend(list(tokens[:-num_steps]))
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for token in tokens[-num_steps:]:
            sequence.extend([token])
            draft_of(sequence)
    finally:
        sys.settrace(before)
    return count
