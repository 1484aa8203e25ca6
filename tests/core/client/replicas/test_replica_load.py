"""An engine that computes a prefix for one request computes it for others, too, while that one waits."""

from __future__ import annotations

import random

import pytest

from llmfw.core.client.prompt_prefixes import FIRST, PromptPrefixes
from llmfw.core.client.replicas.replica_load import Place, ReplicaLoad

from ....length import of_length

BLOCK = 2
NUM_BLOCKS = 5 * FIRST


def prompt(*lengths: int) -> list[int]:
    """Return a prompt that parts from others after so many blocks: each pair is a length and a family."""
    tokens: list[int] = []
    for length, family in zip(lengths[::2], lengths[1::2], strict=True):
        tokens += [1 + family] * (length * BLOCK)
    return tokens


def prefixes(tokens: list[int]) -> PromptPrefixes:
    found = PromptPrefixes(tokens, "", BLOCK)
    found.up_to(FIRST)
    return found


def matched(load: ReplicaLoad, tokens: list[int], num_cached: int = 0) -> int:
    found = prefixes(tokens)
    found.up_to(num_cached + 1)
    return load.num_matched(found, num_cached)


def test_waiting_prompts_match_to_their_ends() -> None:
    """Also far behind the first prefixes, which are all that is hashed of a prompt that nobody else has."""
    load = ReplicaLoad()
    first, second = (Place(100, prefixes(prompt(NUM_BLOCKS, 0))) for _ in range(2))
    load.enter(first)
    assert len(load.awaited) == FIRST
    assert matched(load, prompt(3, 0, NUM_BLOCKS, 1)) == 3
    assert len(load.awaited) == FIRST
    assert matched(load, prompt(FIRST + 3, 0, NUM_BLOCKS, 1)) == FIRST + 3
    load.enter(second)
    assert matched(load, prompt(NUM_BLOCKS, 0, 3, 1)) == NUM_BLOCKS
    load.answered(first)
    assert matched(load, prompt(NUM_BLOCKS, 0, 3, 1)) == NUM_BLOCKS
    load.leave(second)
    assert matched(load, prompt(NUM_BLOCKS, 0, 3, 1)) == 0
    assert not load.awaited
    assert not load._unfinished


def test_cached_prefixes_are_not_awaited() -> None:
    load = ReplicaLoad()
    waiting = prefixes(prompt(NUM_BLOCKS, 0))
    waiting.up_to(FIRST + 1)
    load.enter(Place(100, waiting, num_cached=FIRST))
    assert len(load.awaited) == len(waiting.known) - FIRST
    assert matched(load, prompt(NUM_BLOCKS, 0), FIRST) == NUM_BLOCKS
    assert (
        matched(load, prompt(NUM_BLOCKS, 0), 2) == 2
    )  # evicted since: computed by nobody, as far as is known


@pytest.mark.parametrize("seed", range(of_length(10, 100)))
def test_matches_equal_those_of_whole_prompts(seed: int) -> None:
    rng = random.Random(seed)
    load, waiting = ReplicaLoad(), dict[Place, list[int]]()

    def some() -> list[int]:
        pieces = [(rng.randrange(1, 2 * FIRST), rng.randrange(2)) for _ in range(4)]
        return prompt(*(number for piece in pieces for number in piece))

    for _ in range(60):
        tokens = some()
        expected = 0
        for other in waiting.values():
            count = 0
            while tokens[: (count + 1) * BLOCK] == other[: (count + 1) * BLOCK] and count < min(
                len(tokens) // BLOCK, len(other) // BLOCK
            ):
                count += 1
            expected = max(expected, count)
        assert matched(load, tokens) == expected
        if rng.random() < 0.6 or not waiting:
            place = Place(len(tokens), prefixes(tokens))
            load.enter(place)
            waiting[place] = tokens
        else:
            place = rng.choice(list(waiting))
            del waiting[place]
            load.leave(place)
    for place in waiting:
        load.leave(place)
    assert (load.awaited, load._unfinished, load.queued_tokens, load.num_requests) == ({}, {}, 0, 0)
