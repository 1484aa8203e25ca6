"""One table says of all engines what each of them holds."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.client.cache_mirror import num_held
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.prompt_prefixes import PromptPrefixes


@given(st.lists(st.integers(0, 12), min_size=1, max_size=70), st.integers(0, 12))
def test_matches_are_those_of_each_engine(depths: list[int], length: int) -> None:
    """Engines that hold the first so many blocks of a prompt, and any of other prompts."""
    index, rng = PrefixIndex(), random.Random(length)
    prompt = [rng.randrange(2**64) for _ in range(length)]
    others = [rng.randrange(2**64) for _ in range(5)]
    held = [set(prompt[:depth]) | set(others[: rng.randrange(6)]) for depth in depths]
    for engine, hashes in enumerate(held):
        index.add(hashes, engine)
    expected = {engine: num_held(prompt, hashes) for engine, hashes in enumerate(held)}
    assert index.num_held(PromptPrefixes.of_hashes(prompt)) == {
        engine: num for engine, num in expected.items() if num
    }
    for engine, hashes in enumerate(held):
        index.remove(hashes, engine)
        index.remove(hashes, engine)  # again, without an effect
    assert len(index) == 0
    assert index.num_held(PromptPrefixes.of_hashes(prompt)) == {}


class Counting(dict[int, int]):
    """Counts look-ups."""

    num = 0

    def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
        self.num += 1
        return super().get(key, default)


def test_look_ups_do_not_grow_with_engines() -> None:
    """256 engines with one system prompt of 64 blocks."""
    index, prompt = PrefixIndex(), list(range(1, 101))
    for engine in range(256):
        index.add(prompt[:64], engine)
    index._holders = counting = Counting(index._holders)
    assert set(index.num_held(PromptPrefixes.of_hashes(prompt)).values()) == {64}
    assert counting.num < 10
