"""Hands the states of one layer to transformers' modules, and takes them back."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, LinearAttentionLayer

from llmfw.core.interfaces.state_layer import StateKey
from llmfw.core.interfaces.state_storage import States

MAX_STATES = 8
"""Maximum number of states of one kind in a layer."""


class StateCache(Cache):  # type: ignore[misc]
    """A cache of one layer, for one call of the module that changes the layer's states.

    Args:
        states: states of the sequences in the call, which the call may overwrite; None: the sequences start.
    """

    def __init__(self, states: States | None) -> None:
        self._layer = _StateLayerCache(states)
        super().__init__(layers=_OneLayer([self._layer]))

    def states(self) -> dict[StateKey, torch.Tensor]:
        """Return the states that the layer now has, by key; each is [N, *shape]."""
        found: dict[StateKey, torch.Tensor] = {}
        for number in range(MAX_STATES):
            if (conv := self._layer.conv_states[number]) is not None:
                found[StateKey("conv", number)] = conv
            if (recurrent := self._layer.recurrent_states[number]) is not None:
                found[StateKey("recurrent", number)] = recurrent
        return found

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        """Return whether the step's sequences have states of earlier steps."""
        return self._layer.continues

    def is_recording_past(self, layer_idx: int) -> bool:
        """Return False: states are never rolled back."""
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return a convolution's state; None in the first step of the sequences."""
        return self._layer.conv_states[state_idx] if self._layer.continues else None

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | None:
        """Return a recurrent state; None in the first step of the sequences."""
        return self._layer.recurrent_states[state_idx] if self._layer.continues else None

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Append to a convolution's state, as transformers does; return the state before it was cut."""
        updated: torch.Tensor = self._layer.update_conv_state(conv_states, state_idx, **kwargs)
        return updated

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Replace a recurrent state, and return it."""
        updated: torch.Tensor = self._layer.update_recurrent_state(recurrent_states, state_idx, **kwargs)
        return updated

    def get_linear_cache(self, layer_idx: int) -> torch.Tensor | None:
        """Return the recurrent state under the name that MiniMax's module uses."""
        return self.get_recurrent_state(layer_idx)

    def set_linear_cache(self, layer_idx: int, linear_cache: torch.Tensor) -> None:
        """Replace the recurrent state under the name that MiniMax's module uses."""
        self.update_recurrent_state(linear_cache, layer_idx)


class _OneLayer(list[Any]):
    """A list of one layer, which every index returns.

    Modules of transformers 5.17 read `layers[layer_idx]`; modules of 5.23 call the cache's methods.
    """

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(0)


class _StateLayerCache(LinearAttentionLayer):  # type: ignore[misc]
    """transformers' own layer of a cache, with given states and without marks for its compiler."""

    def __init__(self, states: States | None) -> None:
        super().__init__(number_of_states=MAX_STATES)
        self.continues = states is not None
        for (kind, number), tensor in (states or {}).items():
            if kind == "conv":
                self.conv_states[number] = tensor
                self.is_conv_states_initialized[number] = True
                self.conv_kernel_size[number] = tensor.shape[-1]
                self.has_previous_state[number] = True
            else:
                self.recurrent_states[number] = tensor
                self.is_recurrent_states_initialized[number] = True

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Replace a recurrent state, converted to the old state's dtype.

        Does not copy the state into the old one's memory; llmfw's storage does.
        """
        before = self.recurrent_states[state_idx]
        state = recurrent_states if before is None else recurrent_states.to(before.dtype)
        self.recurrent_states[state_idx] = state
        self.is_recurrent_states_initialized[state_idx] = True
        return state

    def lazy_initialization(
        self,
        conv_states: torch.Tensor | None = None,
        recurrent_states: torch.Tensor | None = None,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> None:
        """Make room for a state that is stored for the first time."""
        if conv_states is not None:
            size = conv_kernel_size or conv_states.shape[-1]
            self.conv_kernel_size[state_idx] = size
            self.conv_states[state_idx] = conv_states.new_zeros((*conv_states.shape[:-1], size))
            self.is_conv_states_initialized[state_idx] = True
        if recurrent_states is not None:
            self.recurrent_states[state_idx] = torch.zeros_like(recurrent_states)
            self.is_recurrent_states_initialized[state_idx] = True
