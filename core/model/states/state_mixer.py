"""Calls the modules that keep states, one part of the packed row at a time (see `module_mixer`, `row_states`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from llmfw.core.interfaces.state_layer import StateKey, StateLayer
from llmfw.core.interfaces.state_storage import States

from .module_mixer import ModuleCall, ModuleMixer, Part, RunningStep
from .state_cache import StateCache


class StateCall(ModuleCall):
    """One call of a module that keeps states, for the whole packed row.

    Args:
        mixer: replacement of the module's `forward`.
        arguments: arguments of the call by name. Tensors [1, total, ...] are rows of tokens.
    """

    def __init__(self, mixer: StateMixer, arguments: Mapping[str, Any]) -> None:
        super().__init__(mixer, arguments)
        self.mixer = mixer

    def run(self, part: Part, states: States | None) -> tuple[Any, dict[StateKey, torch.Tensor]]:
        """Return the module's output for one part, and the states after it.

        Args:
            states: states of the part's sequences; None: they start.
        """
        if states is not None and part.num_tokens > 1 and not self.mixer.takes_pieces:
            return self._run_singly(part, states)
        cache = StateCache(states)
        output = self.call_module(part, **{self.mixer.cache_name: cache})
        return output, cache.states()

    def _run_singly(self, part: Part, states: States) -> tuple[Any, dict[StateKey, torch.Tensor]]:
        """Return the result of `run` for one sequence, computed token by token."""
        assert isinstance(part.tokens, slice)
        assert part.num_sequences == 1
        outputs = []
        after = dict(states)
        for place in range(part.tokens.start, part.tokens.stop):
            output, after = self.run(Part(slice(place, place + 1), 1, 1, continues=True), after)
            outputs.append(output)
        return _concatenated(outputs), after


class StateMixer(ModuleMixer):
    """Replacement of the `forward` of a module that keeps states.

    Args:
        module: the module.
        cache_name: name of the parameter by which it takes the cache.
        running: the step that the model runs.

    Attributes:
        layer: description of the states; without states until the model has been probed.
        takes_pieces: whether the module continues from a state with several tokens at once. If not, the
            module gets the tokens one by one, because transformers' Mamba 1 modules ignore the state
            otherwise.
    """

    def __init__(self, module: nn.Module, cache_name: str, running: RunningStep, layer: StateLayer) -> None:
        super().__init__(module, cache_name, running)
        self.layer = layer
        self.takes_pieces = True

    def make_call(self, arguments: Mapping[str, Any]) -> StateCall:
        """Return a call of the module.

        Args:
            arguments: arguments of the call by name.
        """
        return StateCall(self, arguments)


def _concatenated(outputs: list[Any]) -> Any:
    """Return a module's output for a sequence from its outputs for each token."""
    first = outputs[0]
    if isinstance(first, tuple):
        return tuple(_concatenated([output[i] for output in outputs]) for i in range(len(first)))
    is_row = isinstance(first, torch.Tensor) and first.shape[:2] == (1, 1)
    return torch.cat(outputs, dim=1) if is_row else None
