"""The tensors that hold the states of sequences between steps, for layers with convolutions or recurrences.

A sequence's slot is its row of the page table, so slots need no allocator. Unlike keys and values, a state
is changed in place: it always belongs to all tokens that its sequence has computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.errors import EngineError

from .state_layer import StateKey, StateLayer

States = Mapping[StateKey, torch.Tensor]
"""States of N sequences in one layer: each tensor is [N, *shape]."""


class StateStorage:
    """States of all slots, layer by layer.

    Args:
        layers: the layers with states.
        num_slots: number of slots: that of rows of the page table.
        device: device of the model.
    """

    def __init__(self, layers: Sequence[StateLayer], num_slots: int, device: torch.device) -> None:
        self._tensors = [
            {
                spec.key: torch.zeros((num_slots, *spec.shape), dtype=spec.dtype, device=device)
                for spec in layer.states
            }
            for layer in layers
        ]
        self._lengths = np.zeros(num_slots, dtype=np.int64)

    def begin(
        self, slots: npt.NDArray[np.integer], starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> None:
        """Record which tokens the next step adds to which states.

        A sequence that starts at position 0 takes its slot over, whatever the slot holds.

        Args:
            slots: slot of each sequence: [B].
            starts, ends: position of each sequence's first token in the step, and after its last one: [B].

        Raises:
            EngineError: a sequence continues at another position than its state has reached.
        """
        for slot, start in zip(slots.tolist(), starts.tolist(), strict=True):
            if start and self._lengths[slot] != start:
                raise EngineError(
                    f"a sequence continues at position {start}, but its state covers {self._lengths[slot]} tokens; report "
                    "this as a bug of the scheduler"
                )
        self._lengths[slots] = ends

    def take(self, index: int, slots: torch.Tensor) -> States:
        """Return copies of a layer's states in these slots, given as a tensor [N]."""
        return {key: tensor.index_select(0, slots) for key, tensor in self._tensors[index].items()}

    def put(self, index: int, slots: torch.Tensor, states: States) -> None:
        """Store a layer's states in these slots, given as a tensor [N]."""
        for key, tensor in self._tensors[index].items():
            tensor.index_copy_(0, slots, states[key].to(tensor.dtype))

    @property
    def num_bytes(self) -> int:
        """Size of all states in bytes."""
        return sum(tensor.nbytes for layer in self._tensors for tensor in layer.values())


def state_bytes(layers: Sequence[StateLayer]) -> int:
    """Return the size of one sequence's states in all layers, in bytes."""
    return sum(layer.num_bytes for layer in layers)
