"""Description of a layer that keeps states between steps: of a convolution, a recurrence, or both.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch


class StateKey(NamedTuple):
    """Name of a state within its layer: the state's kind, and its number among the states of that kind."""

    kind: Literal["conv", "recurrent"]
    number: int


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One state of a layer.

    Attributes:
        key: name of the state within its layer.
        shape: shape of one sequence's state.
        dtype: dtype of the state, which may differ from the model's.
    """

    key: StateKey
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Size of one sequence's state in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StateLayer:
    """The states of one layer, found by probing the loaded model.

    Attributes:
        index: position among the layers with states, from 0.
        model_index: position among all layers of the model, from 0.
        states: states of the layer.
    """

    index: int
    model_index: int
    states: tuple[StateSpec, ...]

    @property
    def num_bytes(self) -> int:
        """Size of one sequence's states in bytes."""
        return sum(state.num_bytes for state in self.states)
