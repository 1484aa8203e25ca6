"""A state storage keeps each slot's states, and refuses a sequence that skips tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from llmfw.core.base.errors import EngineError
from llmfw.core.interfaces.state_layer import StateKey, StateLayer, StateSpec
from llmfw.core.interfaces.state_storage import StateStorage, state_bytes

CONV, RECURRENT = StateKey("conv", 0), StateKey("recurrent", 0)
LAYERS = [
    StateLayer(0, 2, (StateSpec(CONV, (4, 3), torch.bfloat16),)),
    StateLayer(1, 5, (StateSpec(CONV, (4, 3), torch.bfloat16), StateSpec(RECURRENT, (2, 8), torch.float32))),
]


@pytest.fixture
def storage() -> StateStorage:
    return StateStorage(LAYERS, 5, torch.device("cpu"))


def test_each_slot_keeps_its_own_states(storage: StateStorage) -> None:
    given = {CONV: torch.randn(2, 4, 3).bfloat16(), RECURRENT: torch.randn(2, 2, 8)}
    storage.put(1, torch.tensor([3, 0]), given)
    taken = storage.take(1, torch.tensor([0, 1, 3]))
    for key, tensor in given.items():
        assert torch.equal(taken[key], torch.stack([tensor[1], torch.zeros_like(tensor[0]), tensor[0]]))
    assert not storage.take(0, torch.arange(5))[CONV].any()


def test_taken_states_are_copies(storage: StateStorage) -> None:
    storage.take(0, torch.tensor([1]))[CONV].fill_(7)
    assert not storage.take(0, torch.tensor([1]))[CONV].any()


def test_states_of_a_range_are_the_memory(storage: StateStorage) -> None:
    taken = storage.take(1, slice(1, 3))
    taken[RECURRENT].fill_(7)
    storage.put(1, slice(1, 3), taken)
    assert storage.take(1, torch.arange(5))[RECURRENT][:, 0, 0].tolist() == [0, 7, 7, 0, 0]


def test_states_are_put_into_a_range(storage: StateStorage) -> None:
    """New tensors, of another dtype, too, and views of other slots, which overlap."""
    given = {CONV: torch.randn(3, 4, 3), RECURRENT: torch.randn(3, 2, 8)}
    storage.put(1, slice(0, 3), given)
    taken = storage.take(1, torch.arange(5))
    assert torch.equal(taken[CONV][:3], given[CONV].bfloat16())
    storage.put(1, slice(1, 4), storage.take(1, slice(0, 3)))
    assert torch.equal(storage.take(1, slice(1, 4))[RECURRENT], given[RECURRENT])
    assert torch.equal(storage.take(1, slice(0, 1))[RECURRENT], given[RECURRENT][:1])


def test_sequences_continue_where_they_were(storage: StateStorage) -> None:
    slots = np.array([2, 4])
    storage.begin(slots, np.array([0, 0]), np.array([10, 3]))
    storage.begin(slots, np.array([10, 0]), np.array([11, 8]))
    with pytest.raises(EngineError, match="continues at position 9, but its state covers 8 tokens"):
        storage.begin(slots, np.array([11, 9]), np.array([12, 10]))


def test_copies_happen_one_after_another(storage: StateStorage) -> None:
    """As if each were made alone: a copy may read what one before it has written, and write over it."""
    rng = random.Random(1)
    for _ in range(20):
        before = torch.randn(5, 2, 8)
        storage.put(1, torch.arange(5), {RECURRENT: before, CONV: torch.zeros(5, 4, 3)})
        sources, targets = np.array([rng.choices(range(5), k=6) for _ in range(2)])
        expected = before.clone()
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            expected[target] = expected[source]
        storage.copy(sources, targets)
        assert torch.equal(storage.take(1, torch.arange(5))[RECURRENT], expected)


def test_a_copied_state_covers_as_many_tokens(storage: StateStorage) -> None:
    storage.begin(np.array([0]), np.array([0]), np.array([10]))
    storage.note_copies(np.array([4]), np.array([7]))
    storage.copy(np.array([0, 4]), np.array([3, 1]))
    storage.begin(np.array([3, 1]), np.array([10, 7]), np.array([11, 8]))
    with pytest.raises(EngineError, match="continues at position 8, but its state covers 7 tokens"):
        storage.begin(np.array([4]), np.array([8]), np.array([9]))


def test_sizes_are_those_of_the_tensors(storage: StateStorage) -> None:
    assert state_bytes(LAYERS) == 24 + 24 + 64
    assert storage.num_bytes == 5 * state_bytes(LAYERS)
