"""Finds the modules of a model that keep states, and learns the states' shapes by running the model once.

transformers' modules get and set states through a cache. `find_states` looks for modules whose code calls the
cache's methods for states, replaces their `forward` with a `StateMixer`, and records the states that they
store for a few tokens. `state_check` then compares packed and cut sequences with whole ones.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import Any

from torch import nn

from llmfw.core.interfaces.state_layer import StateLayer, StateSpec

from ..failure.refusal import refused, refusing
from ..states.module_code import names_in
from ..states.module_mixer import CACHE_NAMES, ModuleCall, RunningStep
from ..states.row_states import starting_parts
from ..states.state_mixer import StateCall, StateMixer
from ..trial.packed import Packed, run_packed
from .state_check import LENGTHS, check_pieces

logger = logging.getLogger(__name__)

STATE_METHODS = frozenset(
    {
        "update_conv_state",
        "update_recurrent_state",
        "get_conv_state",
        "get_recurrent_state",
        "set_linear_cache",
    }
)


def find_states(model: nn.Module, vocab_size: int) -> list[StateLayer]:
    """Make a model's layers keep their states in llmfw's storage; return these layers. Most models have none.

    Raises:
        ModelError: a layer's states cannot be served; the message gives the reason.
    """
    installed = install_mixers(model)
    if not installed:
        return []
    found, mixers = zip(*installed, strict=True)
    recorder = StateRecorder()
    ids = [[(7 * i + 11 * n + 3) % vocab_size for i in range(size)] for n, size in enumerate(LENGTHS)]
    with refusing(model, "running it to find its states"):
        run_packed(model, ids, recorder)
    missing = [mixer.layer.model_index for mixer in mixers if not mixer.layer.states]
    if missing:
        raise refused(model, f"layer {missing[0]} did not store a state when the model ran on a few tokens")
    layers = [mixer.layer for mixer in mixers]
    kinds = {(type(module), layer.states): layer.index for module, layer in zip(found, layers, strict=True)}
    takes_pieces = {
        kind: check_pieces(model, found[index], recorder.calls[index]) for kind, index in kinds.items()
    }
    for module, mixer in zip(found, mixers, strict=True):
        mixer.takes_pieces = takes_pieces[type(module), mixer.layer.states]
    if singly := sorted({type_.__name__ for (type_, _), takes in takes_pieces.items() if not takes}):
        logger.info("%s computes a prompt after its first piece token by token.", ", ".join(singly))
    return layers


def install_mixers(model: nn.Module) -> list[tuple[nn.Module, StateMixer]]:
    """Replace the `forward` of each module that keeps states; return these modules and the replacements."""
    found = [module for module in model.modules() if STATE_METHODS & names_in(module)]
    if not found:
        return []
    running = RunningStep()
    mixers = [_install(model, module, running, index) for index, module in enumerate(found)]
    running.follow(model)
    return list(zip(found, mixers, strict=True))


def state_layers(model: nn.Module) -> tuple[StateLayer, ...]:
    """Return the layers that `find_states` found in a model."""
    replaced = (vars(module).get("forward") for module in model.modules())
    return tuple(each.layer for each in replaced if isinstance(each, StateMixer))


def take_pieces(model: nn.Module) -> bool:
    """Return whether all modules that keep states continue a sequence with several tokens at once."""
    replaced = (vars(module).get("forward") for module in model.modules())
    return all(each.takes_pieces for each in replaced if isinstance(each, StateMixer))


def _install(model: nn.Module, module: nn.Module, running: RunningStep, index: int) -> StateMixer:
    parameters = inspect.signature(module.forward).parameters
    name = next((name for name in CACHE_NAMES if name in parameters), None)
    number = getattr(module, "layer_idx", None)
    if name is None or not isinstance(number, int):
        raise refused(
            model, f"{type(module).__name__} keeps a state, but takes no cache or does not know its layer"
        )
    mixer = StateMixer(module, name, running, StateLayer(index, number, ()))
    module.forward = mixer
    return mixer


class StateRecorder(Packed):
    """Runs packed sequences of `LENGTHS` tokens from position 0, and records the call and the states of each module."""

    def __init__(self) -> None:
        super().__init__(LENGTHS)
        self.calls: dict[int, StateCall] = {}

    def mix(self, call: ModuleCall) -> Any:
        if not isinstance(call, StateCall):
            return super().mix(call)
        outputs = []
        for part in starting_parts(LENGTHS):
            output, states = call.run(part, None)
            outputs.append((part, output))
            specs = tuple(StateSpec(key, tuple(each.shape[1:]), each.dtype) for key, each in states.items())
            call.mixer.layer = replace(call.mixer.layer, states=specs)
        self.calls[call.mixer.layer.index] = call
        return call.join(outputs)
