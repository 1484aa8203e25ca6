"""Measures how far states in 8 bits are from the exact ones, on a few tokens."""

from __future__ import annotations

from typing import Any

from torch import nn

from llmfw.core.interfaces.packed_states import is_packed, pack, unpack
from llmfw.core.interfaces.state_layer import StateSpec

from ..failure.refusal import refusing
from ..states.module_mixer import ModuleCall
from ..states.row_states import starting_parts
from ..states.state_mixer import StateCall
from ..trial.packed import Packed, run_packed

NUM_TOKENS = 24


def rounding_error(model: nn.Module, vocab_size: int) -> float:
    """Return the largest distance between a layer's state and its copy in 8 bits, relative to the state's norm.

    Args:
        model: a model whose layers keep states.

    Raises:
        ModelError: the model fails on a few tokens.
    """
    recorder = _Rounding()
    with refusing(model, "running it to round its states"):
        run_packed(model, [[(7 * i + 3) % vocab_size for i in range(NUM_TOKENS)]], recorder)
    return recorder.largest


class _Rounding(Packed):
    """Runs one sequence from position 0, and rounds the states that it leaves in each module."""

    def __init__(self) -> None:
        super().__init__([NUM_TOKENS])
        self.largest = 0.0

    def mix(self, call: ModuleCall) -> Any:
        if not isinstance(call, StateCall):
            return super().mix(call)
        [part] = starting_parts([NUM_TOKENS])
        output, states = call.run(part, None)
        for key, state in states.items():
            if is_packed(StateSpec(key, tuple(state.shape[1:]), state.dtype)) and state.norm() > 0:
                distance = (unpack(*pack(state), state.dtype).float() - state.float()).norm()
                self.largest = max(self.largest, float(distance / state.float().norm()))
        return call.join([(part, output)])
