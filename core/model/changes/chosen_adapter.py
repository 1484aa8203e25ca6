"""Applies a model adapter, and checks that the model's results stay the same.

An adapter comes from a plugin. Before the server starts, each fault of the adapter becomes a ComponentError
of one line that names the plugin.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.interfaces.model_adapter import ModelAdapter
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.one_line import one_line
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.plugin.torch_state import keeping_torch_state

from ..attention.hf_attention import IMPLEMENTATION, attend_relayed, relay_step
from ..failure.refusal import refusing
from ..probe.probe import probe
from ..trial.adapter_trial import TOLERANCES, AdapterTrial

logger = logging.getLogger(__name__)

ADVICE = "choose another --model-adapter, or none"


class ChosenAdapter:
    """A model adapter that is for the model's type, and its registry entry."""

    def __init__(self, entry: Entry, adapter: ModelAdapter) -> None:
        self.entry = entry
        self._adapter = adapter

    def apply(self, model: Any, num_layers: int, vocab_size: int) -> None:
        """Adapt a model that was loaded with eager attention.

        Args:
            model: the model, before it is quantized, and before its projections are merged.
            num_layers: number of layers in the model's config.
            vocab_size: upper bound of the token ids to test with.

        Raises:
            ModelError: the model cannot be run before it is adapted.
            ComponentError: the adapter failed, or the adapted model cannot be run or computes different
                results.
        """
        model.eval()
        text_config = model.config.get_text_config(decoder=True)
        with refusing(model, "running it on a few tokens"):
            trial = AdapterTrial(model, vocab_size, text_config)
        before = _weights(model)
        for config in (model.config, text_config):
            config._attn_implementation = IMPLEMENTATION
        relay_step(model, self.entry)
        with _errors(self.entry, "adapt()"), keeping_torch_state(lambda: f"calling {self.entry}"):
            returned: Any = self._adapter.adapt(model, attend_relayed)
            if returned is not None:
                raise WrongReturnError(f"returned {returned!r:.80} in place of None")
            if _weights(model) != before:
                raise WrongReturnError("changed the weights of the model, or their names")
        with _errors(self.entry, "the adapted model"):
            layers = probe(model, num_layers, vocab_size, may_lack_masks=True)
            moved = trial.distance(model, layers)
            tolerance = TOLERANCES[next(model.parameters()).dtype]
            if not moved <= tolerance:
                raise WrongReturnError(
                    f"its logits differ from those of transformers by {moved:.1g}; at most {tolerance:g} is rounding"
                )
        logger.info("Model adapter %s: logits moved by %.1e", self.entry.name, moved)


def model_types_of(component: type[ModelAdapter], entry: Entry) -> tuple[str, ...]:
    """Return the model types that an adapter is for.

    Raises:
        ComponentError: they are not a tuple of names.
    """
    types: Any = component.model_types
    if not isinstance(types, tuple | list) or not types or not all(type(name) is str for name in types):
        raise ComponentError(
            f"{entry} has the model_types {types!r:.80}; they must be a tuple of names of model types"
        )
    return tuple(types)


def unsupported_reason(component: type[ModelAdapter], entry: Entry, hf_config: Any) -> str | None:
    """Return why an adapter refuses a model's config; None if it does not.

    Raises:
        ComponentError: the adapter failed.
    """
    with _errors(entry, "unsupported()"):
        reason: Any = component.unsupported(hf_config)
        if reason is not None and not (isinstance(reason, str) and reason):
            raise WrongReturnError(f"returned {reason!r:.80} in place of a reason or None")
    found: str | None = reason
    return found


@contextmanager
def _errors(entry: Entry, where: str) -> Iterator[None]:
    """Convert any exception in the block to a ComponentError that names the adapter."""
    try:
        with torch.inference_mode():
            yield
    except BaseException as error:  # a foreign component may raise anything
        raise_if_process_ends(error)
        logger.debug("%s failed", entry, exc_info=True)
        text = str(error).strip()
        if not isinstance(error, WrongReturnError | ModelError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise ComponentError(f"{entry} failed in {where}: {one_line(text)}; {ADVICE}") from error


def _weights(model: nn.Module) -> dict[str, int]:
    """Return the `id()` of each weight, by name. Changed values are found by comparing logits."""
    return {name: id(weight) for name, weight in model.named_parameters(remove_duplicate=False)}
