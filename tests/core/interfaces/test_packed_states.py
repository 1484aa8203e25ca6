"""Snapshots in 8 bits keep states within their rounding, and all else as it is."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from llmfw.core.interfaces.packed_states import PackedStates, is_packed, pack, packed_bytes, unpack
from llmfw.core.interfaces.state_layer import StateKey, StateLayer, StateSpec
from llmfw.core.interfaces.state_storage import StateStorage, snapshot_bytes

CONV, RECURRENT = StateKey("conv", 0), StateKey("recurrent", 0)
LAYERS = [
    StateLayer(
        0, 2, (StateSpec(CONV, (4, 3), torch.bfloat16), StateSpec(RECURRENT, (2, 5, 40), torch.float32))
    )
]
CPU = torch.device("cpu")


def states(num: int, scale: float = 1.0) -> dict[StateKey, torch.Tensor]:
    return {CONV: torch.randn(num, 4, 3).bfloat16(), RECURRENT: scale * torch.randn(num, 2, 5, 40)}


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_rows_are_within_half_a_step(scale: float) -> None:
    state = scale * torch.randn(3, 7, 64) * torch.logspace(-3, 3, 7)[:, None]
    step = state.abs().amax(-1, keepdim=True) / 127
    assert ((unpack(*pack(state), torch.float32) - state).abs() <= 0.5001 * step).all()


def test_zeros_stay_and_other_numbers_are_not_hidden() -> None:
    state = torch.zeros(4, 32)
    state[1, 3], state[2, 3], state[3, 3] = torch.nan, torch.inf, -torch.inf
    found = unpack(*pack(state), torch.float32)
    assert not found[0].any()
    assert found[1:].isnan().all()


def test_short_rows_and_integers_are_exact() -> None:
    assert not is_packed(StateSpec(CONV, (64, 4), torch.float32))
    assert not is_packed(StateSpec(CONV, (64,), torch.int64))
    assert is_packed(StateSpec(RECURRENT, (2, 32), torch.float16))


def test_memory_is_what_is_said() -> None:
    packed = PackedStates(LAYERS, 3, CPU)
    assert packed.num_bytes == 3 * packed_bytes(LAYERS) == 3 * (4 * 3 * 2 + 2 * 5 * (40 + 4))
    storage = StateStorage(LAYERS, 5, CPU, num_packed=3)
    exact, rounded = (snapshot_bytes(LAYERS, is_packed=each) for each in (False, True))
    assert storage.num_bytes == 2 * exact + 3 * rounded


def test_random_copies_keep_each_state() -> None:
    """Copies between rows and snapshots, in any order, leave what a plain storage has, within a rounding."""
    rng = random.Random(0)
    exact, packed = StateStorage(LAYERS, 6, CPU), StateStorage(LAYERS, 6, CPU, num_packed=3)
    for number in range(200):
        given, slot = states(1, 10.0 ** rng.randrange(-3, 3)), rng.randrange(6)
        sources, targets = rng.sample(range(6), 3), rng.sample(range(6), 3)
        for storage in (exact, packed):
            storage.put(0, slice(slot, slot + 1), given)
            storage.note_copies(np.array([slot]), np.array([number + 1]))
            storage.copy(np.array(sources), np.array(targets))
        for storage in (exact, packed):  # each snapshot once through a row, which is then as it was
            storage.copy(np.array([3 + number % 3]), np.array([0]))
        wanted, found = exact.take(0, slice(0, 3)), packed.take(0, slice(0, 3))
        assert torch.equal(wanted[CONV], found[CONV])
        largest = wanted[RECURRENT].abs().amax(-1, keepdim=True)
        assert ((wanted[RECURRENT] - found[RECURRENT]).abs() <= 0.02 * largest).all()
