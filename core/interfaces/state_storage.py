"""The tensors that hold the states of sequences between steps, for layers with convolutions or recurrences.

A running sequence's slot is its row of the page table, so these slots need no allocator. Unlike keys and
values, a state is changed in place: it always belongs to all tokens that its sequence has computed. Slots
beyond the rows hold snapshots: copies that the prefix cache keeps for other sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.errors import EngineError

from .packed_states import PackedStates, packed_bytes
from .state_layer import StateKey, StateLayer

States = Mapping[StateKey, torch.Tensor]
"""States of N sequences in one layer: each tensor is [N, *shape]."""

Slots = slice | torch.Tensor
"""N slots: a range of them, or their numbers in any order, [N]."""

_Alike = tuple[bool, torch.Tensor]
"""Whether slots are packed, and their numbers among such slots: [N]."""


class StateStorage:
    """States of all slots, layer by layer.

    Args:
        layers: the layers with states.
        num_slots: number of slots: number of rows of the page table plus number of snapshots.
        device: device of the model.
        num_packed: number of the last slots, which are snapshots, that keep states in 8 bits.
    """

    def __init__(
        self, layers: Sequence[StateLayer], num_slots: int, device: torch.device, num_packed: int = 0
    ) -> None:
        self._num_exact = num_slots - num_packed
        self._tensors = [
            {
                spec.key: torch.zeros((self._num_exact, *spec.shape), dtype=spec.dtype, device=device)
                for spec in layer.states
            }
            for layer in layers
        ]
        self._packed = PackedStates(layers, num_packed, device) if num_packed else None
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
        """Return a layer's states in these slots, none of which is packed: the storage's own memory for a range, else
        copies.

        The caller may change the states in place, and must then store them with `put`.
        """
        if isinstance(slots, slice):
            return {key: tensor[slots] for key, tensor in self._tensors[index].items()}
        return {key: tensor.index_select(0, slots) for key, tensor in self._tensors[index].items()}

    def put(self, index: int, slots: Slots, states: States) -> None:
        """Store a layer's states in these slots; either all of them are packed, or none.

        States that `take` returned for the same range are the storage's own memory, so they are not copied.
        """
        if self._packed is not None and isinstance(slots, slice) and slots.start >= self._num_exact:
            packed = torch.arange(slots.start, slots.stop, device=self._device) - self._num_exact
            self._packed.put(index, packed, states)
            return
        for key, tensor in self._tensors[index].items():
            if isinstance(slots, slice):
                _overwrite(tensor[slots], states[key])
            else:
                tensor.index_copy_(0, slots, states[key].to(tensor.dtype))

    def _copy_at_once(self, sources: npt.NDArray[np.integer], targets: npt.NDArray[np.integer]) -> None:
        """Copy states whose order does not matter."""
        self._lengths[targets] = self._lengths[sources]
        if self._packed is None:
            read, written = (torch.from_numpy(each).to(self._device) for each in (sources, targets))
            for layer in self._tensors:
                for tensor in layer.values():
                    tensor.index_copy_(0, written, tensor.index_select(0, read))
            return
        alike = self._alike(sources, targets)
        for index in range(len(self._tensors)):
            # All are read before any is written, as a source may be the target of a later copy.
            held = [self._take_alike(index, slots) for slots, _ in alike]
            for states, (_, into) in zip(held, alike, strict=True):
                self._put_alike(index, into, states)

    def _alike(
        self, sources: npt.NDArray[np.integer], targets: npt.NDArray[np.integer]
    ) -> list[tuple[_Alike, _Alike]]:
        """Divide copies into up to four parts, each from and to slots that are all packed, or all not."""
        parts = []
        for from_packed, to_packed in itertools.product((False, True), repeat=2):
            chosen = ((sources >= self._num_exact) == from_packed) & (
                (targets >= self._num_exact) == to_packed
            )
            if chosen.any():
                read, written = (
                    torch.from_numpy(slots[chosen] - packed * self._num_exact).to(self._device)
                    for slots, packed in ((sources, from_packed), (targets, to_packed))
                )
                parts.append(((from_packed, read), (to_packed, written)))
        return parts

    def _take_alike(self, index: int, slots: _Alike) -> States:
        is_packed, numbers = slots
        if is_packed and self._packed is not None:
            return self._packed.take(index, numbers)
        return self.take(index, numbers)

    def _put_alike(self, index: int, slots: _Alike, states: States) -> None:
        is_packed, numbers = slots
        if is_packed and self._packed is not None:
            self._packed.put(index, numbers, states)
        else:
            self.put(index, numbers, states)

    @property
    def num_bytes(self) -> int:
        """Size of all states in bytes."""
        exact = sum(tensor.nbytes for layer in self._tensors for tensor in layer.values())
        return exact + (0 if self._packed is None else self._packed.num_bytes)


def state_bytes(layers: Sequence[StateLayer]) -> int:
    """Return the size of one sequence's states in all layers, in bytes."""
    return sum(layer.num_bytes for layer in layers)


def snapshot_bytes(layers: Sequence[StateLayer], *, is_packed: bool) -> int:
    """Return the size of one snapshot of all layers' states in bytes.

    Args:
        is_packed: whether it is kept in 8 bits.
    """
    return packed_bytes(layers) if is_packed else state_bytes(layers)


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
