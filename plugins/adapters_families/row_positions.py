"""Positions of the tokens of a step, for modules that number the tokens of a row by themselves.

transformers' positional embeddings of BART and its relatives count from the start of the row. llmfw packs several
sequences into one row, so these modules get the positions that llmfw gives the model.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .small_configs import small_configs


class RowPositions:
    """The positions that a model has received in its current call. A forward pre-hook of the model.

    Does not hand the positions on to a model whose `forward` does not name them, nor masks that the model does not
    take (see `takes_mask`).

    Args:
        model: whole model.
        takes_mask: whether the model takes a mask of four dimensions, as llmfw gives it.

    Attributes:
        value: position of each token in its sequence, [T].
    """

    value: torch.Tensor

    def __init__(self, model: nn.Module, *, takes_mask: bool = True) -> None:
        self._takes_mask = takes_mask
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the positions of a call; return the arguments for the model."""
        given = kwargs.get("position_ids")
        ids = kwargs["input_ids"] if given is None else given
        self.value = torch.arange(ids.shape[-1], device=ids.device) if given is None else given[0]
        kwargs = dict(kwargs)
        if not self._takes_positions:
            kwargs.pop("position_ids", None)
        if not self._takes_mask:
            kwargs.pop("attention_mask", None)
        return args, kwargs


class PlacedEmbedding:
    """Computes a module of positional embeddings for the positions that the model has received.

    Args:
        module: the module.
        positions: the model's positions.
    """

    def __init__(self, module: nn.Module, positions: RowPositions) -> None:
        self._forward = module.forward
        self._positions = positions

    def __call__(self, row: Any, past_key_values_length: int = 0, **kwargs: Any) -> torch.Tensor:
        """Return the embeddings of the row's tokens, as the module would of a sequence at these positions."""
        embeddings: torch.Tensor = self._forward(row, position_ids=self._positions.value)
        return embeddings


def place_embeddings(model: nn.Module, positions: RowPositions) -> None:
    """Make all modules of positional embeddings that number a row by themselves use the model's positions."""
    for module in model.modules():
        _, *others = inspect.signature(module.forward).parameters or ("",)
        if {"past_key_values_length", "position_ids"} <= set(others) and not list(module.children()):
            module.forward = PlacedEmbedding(module, positions)


class RowPositionsAdapter(ModelAdapter):
    """Adapts BART and its relatives: gives their positional embeddings the positions of the step."""

    model_types = (
        *("bart", "blenderbot", "blenderbot-small", "marian", "mbart", "pegasus", "plbart"),
        "bigbird_pegasus",
    )
    conformance = small_configs(*model_types)

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of the positional embeddings."""
        place_embeddings(model, RowPositions(model))
        for module in model.modules():
            if getattr(module, "is_decoder", False) and getattr(module, "is_causal", True) is False:
                vars(module)["is_causal"] = True  # BigBird-Pegasus leaves it to the mask
