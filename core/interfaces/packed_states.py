"""Copies of states in 8 bits, as snapshots of prefixes may be kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from .state_layer import StateKey, StateLayer, StateSpec

LEAST_WIDTH = 32
"""Smallest row that is packed. A shorter one, as of a convolution, would save little beside its scale."""

LARGEST = 127


def is_packed(spec: StateSpec) -> bool:
    """Return whether a state is kept in 8 bits: it has floats, and its last dimension is LEAST_WIDTH or more."""
    return bool(spec.shape) and spec.shape[-1] >= LEAST_WIDTH and spec.dtype.is_floating_point


def packed_bytes(layers: Sequence[StateLayer]) -> int:
    """Return the size of one snapshot of all layers in bytes, if it is kept in 8 bits."""
    return sum(
        math.prod(spec.shape) + 4 * math.prod(spec.shape[:-1]) if is_packed(spec) else spec.num_bytes
        for layer in layers
        for spec in layer.states
    )


def pack(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each row of a state to 8 bits.

    Args:
        state: floats: [..., W].

    Returns:
        The rounded numbers: [..., W], int8. The factor of each row: [..., 1], float32; NaN if the row has a number that
        is not finite.
    """
    wide = state.float()
    scales = wide.abs().amax(-1, keepdim=True) / LARGEST
    scales = torch.where(torch.isfinite(scales), scales, math.nan)
    rounded = torch.round(wide / scales.clamp(min=torch.finfo(torch.float32).tiny)).nan_to_num(0)
    return rounded.to(torch.int8), scales


def unpack(rounded: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the state that `pack` rounded: [..., W]."""
    return (rounded * scales).to(dtype)


class PackedStates:
    """The snapshots of all layers.

    Args:
        layers: the layers with states.
        num_slots: number of snapshots.
        device: device of the model.
    """

    def __init__(self, layers: Sequence[StateLayer], num_slots: int, device: torch.device) -> None:
        self._dtypes = [{spec.key: spec.dtype for spec in layer.states} for layer in layers]
        self._stored = [
            {spec.key: _allocate(spec, num_slots, device) for spec in layer.states} for layer in layers
        ]

    def put(self, index: int, slots: torch.Tensor, states: Mapping[StateKey, torch.Tensor]) -> None:
        """Store a layer's states in these slots: [N], and each state [N, *shape]."""
        for key, (numbers, scales) in self._stored[index].items():
            if scales is None:
                numbers.index_copy_(0, slots, states[key].to(numbers.dtype))
                continue
            rounded, found = pack(states[key])
            numbers.index_copy_(0, slots, rounded)
            scales.index_copy_(0, slots, found)

    def take(self, index: int, slots: torch.Tensor) -> dict[StateKey, torch.Tensor]:
        """Return a layer's states in these slots, [N], in their own dtypes."""
        return {
            key: numbers.index_select(0, slots)
            if scales is None
            else unpack(
                numbers.index_select(0, slots), scales.index_select(0, slots), self._dtypes[index][key]
            )
            for key, (numbers, scales) in self._stored[index].items()
        }

    @property
    def num_bytes(self) -> int:
        """Size of all snapshots in bytes."""
        tensors = [tensor for layer in self._stored for stored in layer.values() for tensor in stored]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _allocate(
    spec: StateSpec, num_slots: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not is_packed(spec):
        return torch.zeros((num_slots, *spec.shape), dtype=spec.dtype, device=device), None
    numbers = torch.zeros((num_slots, *spec.shape), dtype=torch.int8, device=device)
    return numbers, torch.zeros((num_slots, *spec.shape[:-1], 1), dtype=torch.float32, device=device)
