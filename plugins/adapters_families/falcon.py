"""Adapter of Falcon: multi-query, grouped-query or multi-head attention, before or parallel to the MLP."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .attention_forward import RotaryForward
from .small_configs import small_configs


class FalconAdapter(ModelAdapter):
    """Gives each attention module a `forward` that keeps one key and value for each group of heads."""

    model_types = ("falcon",)
    conformance = small_configs("falcon")

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Refuse models with ALiBi, such as falcon-rw: their biases are not linear, because they are rounded."""
        return "its attention adds ALiBi biases that are rounded to bfloat16" if config.alibi else None

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of the attention modules."""
        from transformers.models.falcon.modeling_falcon import FalconAttention, apply_rotary_pos_emb

        for module in model.modules():
            if isinstance(module, FalconAttention):
                module.forward = FalconForward(module, attend, apply_rotary_pos_emb)


class FalconForward(RotaryForward):
    """Computes a Falcon attention module."""

    def __call__(
        self,
        hidden_states: torch.Tensor,
        alibi: None,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        **kwargs: object,
    ) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size]."""
        parts = self._split(self._module.query_key_value(hidden_states))
        query, key, value = (part.transpose(1, 2) for part in parts)
        query, key = self._rotate(query, key, *position_embeddings)
        output = self._attend(self._module, query, key, value, attention_mask)
        return self._module.dense(output.flatten(2)), None

    def _split(self, fused: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split [1, T, …] into queries [1, T, heads, head_dim], and keys and values [1, T, kv_heads, head_dim].

        For each group of heads, `fused` contains the queries, then the key, then the value.
        """
        groups = fused.unflatten(2, (self._module.num_kv_heads, -1, self._module.head_dim))
        return groups[:, :, :, :-2].flatten(2, 3), groups[:, :, :, -2], groups[:, :, :, -1]
