"""Adapters of families whose attention modules have a linear layer each for queries, keys and values.

These modules compute attention in their `forward`, so that is replaced as a whole. In models without an encoder,
which llmfw serves, modules of attention to an encoder are not called.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .attention_forward import AttentionForward
from .row_positions import RowPositions, place_embeddings
from .small_configs import small_configs

BERT = ("query", "key", "value")
"""Names of the linear layers of an attention module of BERT, which another module projects the output of."""
BART = ("q_proj", "k_proj", "v_proj", "out_proj")


class ProjectedForward(AttentionForward):
    """Computes an attention module.

    Args:
        module: attention module whose projections are used.
        attend: llmfw's attention.
        names: names of its linear layers for queries, keys, values and, if there is one, the output.
    """

    def __init__(self, module: Any, attend: Attend, names: Sequence[str]) -> None:
        super().__init__(module, attend)
        self._names = names
        self._head_dim = getattr(module, "head_dim", None) or module.attention_head_size

    def __call__(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *args: object,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size]."""
        layers = [getattr(self._module, name) for name in self._names]
        query, key, value = (
            layer(hidden_states).unflatten(2, (-1, self._head_dim)).transpose(1, 2) for layer in layers[:3]
        )
        query, key, value = self._rotated(query, key, value, **kwargs)
        output = self._attend(self._module, query, key, value, attention_mask).flatten(2)
        return layers[3](output) if len(layers) > 3 else output, None

    def _rotated(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the queries, keys and values with positions applied."""
        return query, key, value


class RotatedForward(ProjectedForward):
    """Computes an attention module of RoFormer."""

    def _rotated(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sinusoidal_pos: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rotate = self._module.apply_rotary_position_embeddings
        if self._module.rotary_value:
            query, key, value = rotate(sinusoidal_pos, query, key, value)
        else:
            query, key = rotate(sinusoidal_pos, query, key)
        return query, key, value


class FirstType(RowPositions):
    """Positions of a row, all of whose tokens are of the type 0. BigBird has types for its longest sequence only."""

    def __call__(self, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the positions of a call; return the arguments for the model, with types."""
        args, kwargs = super().__call__(model, args, kwargs)
        if "token_type_ids" in inspect.signature(model.forward).parameters:
            kwargs = {"token_type_ids": torch.zeros_like(kwargs["input_ids"])} | kwargs
        return args, kwargs


class BertLikeAdapter(ModelAdapter):
    """Adapts decoders that are like BERT."""

    model_types: tuple[str, ...] = ("megatron-bert", "rembert", "big_bird")
    conformance = small_configs(*model_types)
    forward = ProjectedForward

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Refuse encoders, and block-sparse attention."""
        if not config.is_decoder:
            return "its tokens attend to later tokens (is_decoder is false in its config)"
        if getattr(config, "attention_type", "original_full") != "original_full":
            return "it has block-sparse attention; BigBird is served if its config names the attention_type original_full"
        return None

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of the attention modules."""
        place_embeddings(model, FirstType(model))
        for module in model.modules():
            if all(isinstance(getattr(module, name, None), nn.Linear) for name in BERT):
                module.forward = self.forward(module, attend, BERT)


class RoFormerAdapter(BertLikeAdapter):
    """Adapts RoFormer, which rotates queries and keys, and values if its config says so."""

    model_types = ("roformer",)
    conformance = small_configs(*model_types)
    forward = RotatedForward


class GitAdapter(BertLikeAdapter):
    """Adapts GIT, as a model of text."""

    model_types = ("git",)
    conformance = small_configs(*model_types)

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Refuse nothing: GIT is a decoder."""
        return None


class BartLikeAdapter(ModelAdapter):
    """Adapts relatives of BART that compute attention in their own code."""

    model_types = ("mvp", "trocr", "xglm")
    conformance = small_configs(*model_types)

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Refuse what depends on more than the tokens before and their positions."""
        if getattr(config, "use_prompt", False):
            return "its layers attend to learned prompts (use_prompt in its config)"
        if not getattr(config, "use_learned_position_embeddings", True):
            return "its positions depend on padding tokens (use_learned_position_embeddings is false in its config)"
        return None

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of positional embeddings and attention modules."""
        place_embeddings(model, RowPositions(model))
        for module in model.modules():
            if all(isinstance(getattr(module, name, None), nn.Linear) for name in BART):
                module.forward = ProjectedForward(module, attend, BART)
