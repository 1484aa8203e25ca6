"""Calls modules that need to know the bounds of sequences, one part of the packed row at a time.

Such a module takes sequences of equal length, [N, T, hidden], and transformers' cache. llmfw's rows are
[1, total, hidden], with sequences of any lengths. A `ModuleMixer` takes the place of the module's `forward`. It
passes each call to the running step, which knows the sequences' bounds, and the step runs it part by part.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmfw.core.interfaces.state_layer import StateKey
from llmfw.core.interfaces.state_storage import Slots, States

CACHE_NAMES = ("cache_params", "past_key_values", "past_key_value")
"""Names of the parameter by which transformers' modules take the cache."""


@dataclass(frozen=True, slots=True)
class Part:
    """Sequences of equal length in the packed row, which are computed together.

    Attributes:
        tokens: places of the sequences' tokens in the row, sequence after sequence: [N * T], or a slice.
        num_sequences: number of sequences N.
        num_tokens: number of tokens T of each sequence.
        slots: slot of each sequence's states; None: the states are not kept.
        continues: whether the sequences have states; if not, they start.
        copied_to: second slot to which the state after the part is copied; only for a single sequence.
    """

    tokens: slice | torch.Tensor
    num_sequences: int
    num_tokens: int
    slots: Slots | None = None
    continues: bool = False
    copied_to: Slots | None = None


class ModuleCall(ABC):
    """One call of a module, for the whole packed row.

    Args:
        mixer: replacement of the module's `forward`.
        arguments: arguments of the call by name. Tensors [1, total, ...] are rows of tokens.
    """

    def __init__(self, mixer: ModuleMixer, arguments: Mapping[str, Any]) -> None:
        self.module_mixer = mixer
        self.arguments = arguments
        self.total = next(iter(arguments.values())).shape[1]

    @abstractmethod
    def run(self, part: Part, states: States | None) -> tuple[Any, dict[StateKey, torch.Tensor]]:
        """Return the module's output for one part, and the states after it.

        Args:
            states: states of the part's sequences; None: they start.
        """

    def answer(self, output: Any) -> Any:
        """Return what the module's caller gets for the whole row.

        Args:
            output: the module's output for the whole row.
        """
        return output

    def call_module(self, part: Part, **replaced: Any) -> Any:
        """Return the module's output for one part.

        Args:
            replaced: arguments in place of those of the call, by name.
        """
        mixer = self.module_mixer
        given = {name: self._cut(name, value, part) for name, value in self.arguments.items()}
        kwargs = given.pop(mixer.kwargs_name, None) or {}
        return mixer.original(**given | kwargs | replaced)

    def _cut(self, name: str, value: Any, part: Part) -> Any:
        """Return the slice of an argument for a part of the row."""
        if isinstance(value, tuple):
            return tuple(self._cut(name, each, part) for each in value)
        if isinstance(value, dict):
            return {key: self._cut(key, each, part) for key, each in value.items()}
        if "mask" in name:  # sequences are not padded
            return None
        if not isinstance(value, torch.Tensor) or value.shape[:2] != (1, self.total):
            return value
        return value[0, part.tokens].view(part.num_sequences, part.num_tokens, *value.shape[2:])

    def join(self, parts: list[tuple[Part, Any]]) -> Any:
        """Return the module's output for the whole row from its outputs for parts.

        Tensors that are not rows of tokens become None.
        """
        part, first = parts[0]
        if isinstance(first, tuple):
            return tuple(self.join([(each, out[i]) for each, out in parts]) for i in range(len(first)))
        if not isinstance(first, torch.Tensor):
            return first
        if any(out.shape[:2] != (each.num_sequences, each.num_tokens) for each, out in parts):
            return None
        if len(parts) == 1 and isinstance(part.tokens, slice):
            return first.reshape(1, self.total, *first.shape[2:])
        row = first.new_empty((1, self.total, *first.shape[2:]))
        for each, output in parts:
            row[0, each.tokens] = output.reshape(-1, *output.shape[2:])
        return row


class RunningStep:
    """The step that a model runs at this moment: the `llmfw_step` of the call.

    Attributes:
        step: the step; None: the model does not run, or was called without one.
    """

    def __init__(self) -> None:
        self.step: Any = None

    def follow(self, model: nn.Module) -> None:
        """Keep `step` up to date, by hooks of the model."""
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        model.register_forward_hook(self._end, always_call=True)

    def _begin(self, module: nn.Module, args: object, kwargs: dict[str, Any]) -> None:
        self.step = kwargs.get("llmfw_step")

    def _end(self, module: nn.Module, args: object, output: object) -> None:
        self.step = None


class ModuleMixer(ABC):
    """Replacement of a module's `forward`, which runs it by parts of the packed row.

    Args:
        module: the module.
        cache_name: name of the parameter by which it takes the cache.
        running: the step that the model runs.

    Attributes:
        cache_name: the constructor's argument.
        original: the module's own `forward`.
        kwargs_name: name of the parameter that takes further keyword arguments; "": there is none.
    """

    def __init__(self, module: nn.Module, cache_name: str, running: RunningStep) -> None:
        self.cache_name = cache_name
        self.original: Callable[..., Any] = module.forward
        self._signature = inspect.signature(module.forward)
        kinds = self._signature.parameters.values()
        self.kwargs_name = next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), "")
        self._running = running

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Let the running step compute the module's output for the packed row."""
        if self._running.step is None:
            return self.original(*args, **kwargs)
        return self._running.step.mix(self.make_call(self._signature.bind(*args, **kwargs).arguments))

    @abstractmethod
    def make_call(self, arguments: Mapping[str, Any]) -> ModuleCall:
        """Return a call of the module.

        Args:
            arguments: arguments of the call by name.
        """
