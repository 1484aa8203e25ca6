"""Hashes of prompts' prefixes, with which engines report the contents of their prefix caches to routers.

The hash of a prefix is a sum modulo 2**64. The sum has one number for each token and its position, and one
number for the cache salt. So one pass computes the hashes of all prefixes of a prompt. The hashes are not
cryptographic: a collision, accidental or deliberate, makes a router misjudge the length of a match. A
collision never makes two prompts share a cached prefix, because the cache itself compares tokens.

The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

import functools
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

MIN_BLOCK = 16
"""Minimum number of tokens in a block. Routers know the length of a match only in whole blocks."""

Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def block_size(page_size: int) -> int:
    """Return the number of tokens in a block: a whole number of pages, and at least MIN_BLOCK tokens."""
    return -(-MIN_BLOCK // page_size) * page_size


@functools.lru_cache(maxsize=1024)
def hash_of_salt(salt: str) -> int:
    """Return the hash of the empty prefix of prompts with this cache salt."""
    return int.from_bytes(blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=32)
def _positions(count: int) -> Hashes:
    """Return a number for each of the first positions of a prompt: [count]."""
    numbers = np.arange(1, 1 + count, dtype=np.uint64)
    numbers *= _GOLDEN
    numbers.flags.writeable = False
    return numbers


def prefix_hashes(token_ids: npt.NDArray[np.int32], start: int, start_hash: int) -> Hashes:
    """Return one hash per token: the hash of the prefix that ends after the token: [n].

    Args:
        token_ids: tokens of a prompt from position `start` on: [n].
        start_hash: hash of the tokens before position `start`.
    """
    count = len(token_ids)
    positions = _positions(1 << (start + count).bit_length())[start : start + count]
    mixed: Hashes = positions + token_ids.view(np.uint32)
    first, second, third = _SHIFTS
    mixed ^= mixed >> first
    mixed *= _FIRST
    mixed ^= mixed >> second
    mixed *= _SECOND
    mixed ^= mixed >> third
    sums: Hashes = np.cumsum(mixed, dtype=np.uint64)
    sums += np.uint64(start_hash)
    return sums


def block_hashes(token_ids: npt.NDArray[np.int32], salt: str, block: int) -> list[int]:
    """Return the hash of each prefix of a prompt that consists of whole blocks."""
    whole = token_ids[: len(token_ids) - len(token_ids) % block]
    found: list[int] = prefix_hashes(whole, 0, hash_of_salt(salt))[block - 1 :: block].tolist()
    return found
