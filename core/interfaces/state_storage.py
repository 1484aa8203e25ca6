"""The tensors that hold the states of sequences between steps, for layers with convolutions or recurrences.

A running sequence's slot is its row of the page table, so these slots need no allocator. Unlike keys and
values, a state is changed in place: it always belongs to all tokens that its sequence has computed. Slots
beyond the rows hold snapshots: copies that the prefix cache keeps for other sequences.
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

Slots = slice | torch.Tensor
"""N slots: a range of them, or their numbers in any order, [N]."""


class StateStorage:
    """States of all slots, layer by layer.

    Args:
        layers: the layers with states.
        num_slots: number of slots: number of rows of the page table plus number of snapshots.
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
        self._device = device

    def begin(
        self, slots: npt.NDArray[np.integer], starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> None:
        """Record which tokens the next step adds to which states.

        A sequence that starts at position 0 takes over its slot, and ignores the slot's old states.

        Args:
            slots: slot of each sequence: [B].
            starts, ends: position of each sequence's first token in the step, and after its last one: [B].

        Raises:
            EngineError: a sequence does not continue at the position that its state has reached.
        """
        for slot, start in zip(slots.tolist(), starts.tolist(), strict=True):
            if start and self._lengths[slot] != start:
                raise EngineError(
                    f"a sequence continues at position {start}, but its state covers {self._lengths[slot]} tokens; report "
                    "this as a bug of the scheduler"
                )
        self._lengths[slots] = ends

    def copy(self, sources: npt.NDArray[np.integer], targets: npt.NDArray[np.integer]) -> None:
        """Copy the states of all layers from slot to slot, one copy after another: [N], [N]."""
        first = 0
        while first < len(targets):
            num = _num_independent(sources[first:].tolist(), targets[first:].tolist())
            some = slice(first, first + num)
            self._copy_at_once(sources[some], targets[some])
            first += num

    def note_copies(self, slots: npt.NDArray[np.integer], positions: npt.NDArray[np.integer]) -> None:
        """Record the slots that the next step puts states into, and the tokens that each covers: [C], [C]."""
        self._lengths[slots] = positions

    def take(self, index: int, slots: Slots) -> States:
        """Return a layer's states in these slots: the storage's own memory for a range, else copies.

        The caller may change the states in place, and must then store them with `put`.
        """
        if isinstance(slots, slice):
            return {key: tensor[slots] for key, tensor in self._tensors[index].items()}
        return {key: tensor.index_select(0, slots) for key, tensor in self._tensors[index].items()}

    def put(self, index: int, slots: Slots, states: States) -> None:
        """Store a layer's states in these slots.

        States that `take` returned for the same range are the storage's own memory, so they are not copied.
        """
        for key, tensor in self._tensors[index].items():
            if isinstance(slots, slice):
                _overwrite(tensor[slots], states[key])
            else:
                tensor.index_copy_(0, slots, states[key].to(tensor.dtype))

    def _copy_at_once(self, sources: npt.NDArray[np.integer], targets: npt.NDArray[np.integer]) -> None:
        """Copy states whose order does not matter."""
        self._lengths[targets] = self._lengths[sources]
        read, written = (torch.from_numpy(each).to(self._device) for each in (sources, targets))
        for layer in self._tensors:
            for tensor in layer.values():
                tensor.index_copy_(0, written, tensor.index_select(0, read))

    @property
    def num_bytes(self) -> int:
        """Size of all states in bytes."""
        return sum(tensor.nbytes for layer in self._tensors for tensor in layer.values())


def state_bytes(layers: Sequence[StateLayer]) -> int:
    """Return the size of one sequence's states in all layers, in bytes."""
    return sum(layer.num_bytes for layer in layers)


def _overwrite(memory: torch.Tensor, state: torch.Tensor) -> None:
    """Copy a state into its place in the storage, unless the state already uses this memory."""
    if state.untyped_storage().data_ptr() != memory.untyped_storage().data_ptr():
        memory.copy_(state)
    elif state.data_ptr() != memory.data_ptr() or state.stride() != memory.stride():
        memory.copy_(state.clone())  # another view of the storage, which may overlap with the place


def _num_independent(sources: Sequence[int], targets: Sequence[int]) -> int:
    """Return how many of the first copies have the same result if all sources are read first; 1 or more."""
    written: set[int] = set()
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if source in written or target in written:
            return number
        written.add(target)
    return len(targets)
