"""Ordering.by orders as lexsort does, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.core.interfaces.policy import Ordering

RNG = np.random.default_rng(5)
NUM = 1000
KEYS = {
    "few values": RNG.integers(0, 3, NUM),
    "negative": RNG.integers(-50, 50, NUM),
    "huge": RNG.integers(-(2**62), 2**62, NUM),
    "int8": RNG.integers(-128, 128, NUM).astype(np.int8),
    "uint64": RNG.integers(2**63, 2**64, NUM, dtype=np.uint64),
    "bool": RNG.random(NUM) < 0.5,
    "float": RNG.choice([0.0, -1.5, np.inf, -np.inf, 7.25], NUM),
}


@pytest.mark.parametrize("first", KEYS)
@pytest.mark.parametrize("second", KEYS)
def test_ordering_equals_lexsort(first: str, second: str) -> None:
    keys = KEYS[first], KEYS[second], KEYS["few values"]
    assert Ordering.by(*keys).places.tolist() == np.lexsort(keys[::-1]).tolist()


@pytest.mark.parametrize("num", [0, 1, 2, 256, 257])
def test_ties_keep_their_order(num: int) -> None:
    assert Ordering.by(np.zeros(num)).places.tolist() == list(range(num))


def test_keys_are_not_changed() -> None:
    key = np.arange(NUM)[::-1].copy()
    Ordering.by(key, key)
    assert key.tolist() == list(range(NUM))[::-1]
