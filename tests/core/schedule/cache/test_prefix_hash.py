"""Hashes of prefixes, against a plain implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.schedule.cache.prefix_hash import (
    block_hashes,
    block_size,
    hash_of_salt,
    prefix_hashes,
)

MASK = 2**64 - 1
token_ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60)


def plain(tokens: list[int], salt: str) -> list[int]:
    """SplitMix64 of each position and token, summed up."""
    total, found = hash_of_salt(salt), []
    for position, token in enumerate(tokens):
        mixed = ((position + 1) * 0x9E3779B97F4A7C15 + token % 2**32) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        total = (total + (mixed ^ (mixed >> 31))) & MASK
        found.append(total)
    return found


@given(tokens=token_ids, salt=st.text(max_size=5), data=st.data())
def test_hashes_equal_a_plain_sum(tokens: list[int], salt: str, data: st.DataObject) -> None:
    """Also if they are computed in two pieces."""
    expected, ids = plain(tokens, salt), np.array(tokens, np.int32)
    assert prefix_hashes(ids, 0, hash_of_salt(salt)).tolist() == expected
    cut = data.draw(st.integers(0, len(tokens)))
    before = expected[cut - 1] if cut else hash_of_salt(salt)
    assert prefix_hashes(ids[cut:], cut, before).tolist() == expected[cut:]
    assert block_hashes(ids, salt, 4) == expected[3::4]


def test_similar_prompts_have_different_hashes() -> None:
    """Swapped, shifted and repeated tokens, and other salts."""
    prompts = [
        [1, 2, 3, 4],
        [1, 2, 4, 3],
        [2, 1, 3, 4],
        [0, 1, 2, 3],
        [1, 1, 1, 1],
        [0] * 4,
        [-1] * 4,
        [4, 3, 2, 1],
    ]
    salts = ["", "a", "b", "\x1f", "a\x1f", "\x1fa", "\udcff"]
    found = {block_hashes(np.array(prompt, np.int32), salt, 4)[0] for prompt in prompts for salt in salts}
    assert len(found) == len(prompts) * len(salts)


@pytest.mark.parametrize(("page_size", "block"), [(1, 16), (5, 20), (16, 16), (24, 24), (256, 256)])
def test_blocks_are_whole_pages(page_size: int, block: int) -> None:
    assert block_size(page_size) == block
