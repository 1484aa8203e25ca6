"""Prefixes are hashed piece by piece, to the same hashes as all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.prompt_prefixes import FIRST, GROWTH, PromptPrefixes
from llmfw.core.schedule.cache.prefix_hash import block_hashes

BLOCK = 4


@given(
    st.lists(st.integers(0, 2**31 - 1), max_size=300),
    st.lists(st.integers(0, 90), max_size=6),
    st.sampled_from(["", "salt"]),
    st.booleans(),
)
def test_pieces_have_the_hashes_of_the_whole(
    tokens: list[int], counts: list[int], salt: str, is_array: bool
) -> None:
    whole = block_hashes(np.array(tokens, np.int32), salt, BLOCK)
    prompt = PromptPrefixes(np.array(tokens, np.int32) if is_array else tokens, salt, BLOCK)
    assert prompt.num_blocks == len(whole)
    for count in counts:
        assert prompt.up_to(count) == whole[: len(prompt.known)]
        assert len(prompt.known) >= min(count, len(whole))
    assert prompt.up_to(prompt.num_blocks) == whole


@pytest.mark.parametrize("wrong", [2**40, "x", None])
def test_prompts_without_token_ids_have_no_prefixes(wrong: object) -> None:
    """After the last piece of token ids: the engine refuses them by name."""
    prompt = PromptPrefixes([*range(BLOCK), wrong, 0, 0, 0], "", BLOCK)  # type: ignore[list-item]
    assert len(prompt.up_to(1)) == 1
    assert len(prompt.up_to(2)) == 1
    assert prompt.num_blocks == 1


@pytest.mark.parametrize(("num_held", "most"), [(0, FIRST), (FIRST - 1, FIRST), (FIRST, GROWTH * FIRST)])
def test_long_prompts_are_hashed_as_needed(num_held: int, most: int) -> None:
    prompt = PromptPrefixes([*range(1000 * BLOCK)], "", BLOCK)
    index = PrefixIndex()
    index.add(block_hashes(np.arange(num_held * BLOCK, dtype=np.int32), "", BLOCK), 3)
    assert index.num_held(prompt) == ({3: num_held} if num_held else {})
    assert num_held < len(prompt.known) <= most
