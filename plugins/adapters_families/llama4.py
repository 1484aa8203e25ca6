"""Adapter of Llama 4: some layers attend within chunks, others scale each query by its position.

transformers counts this position from the start of the row, but llmfw packs several sequences into one row.
The adapter uses the position of each token in its sequence instead. llmfw serves only sequences that fit into
one chunk, so attention within chunks equals causal attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .attention_forward import RotaryForward
from .small_configs import small_configs


class Llama4Adapter(ModelAdapter):
    """Gives layers a `forward` that passes positions on, and attention modules one that uses positions."""

    model_types = ("llama4", "llama4_text")
    conformance = small_configs("llama4_text", whole="llama4")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of layers and attention modules."""
        from transformers.models.llama4.modeling_llama4 import (
            Llama4TextAttention,
            Llama4TextDecoderLayer,
            apply_rotary_emb,
        )

        for module in model.modules():
            if isinstance(module, Llama4TextDecoderLayer):
                module.forward = PositionsPassedOn(module)
            elif isinstance(module, Llama4TextAttention):
                module.forward = Llama4Forward(module, attend, apply_rotary_emb)


class PositionsPassedOn:
    """Computes a layer, and passes its positions on to its attention module.

    Args:
        layer: the layer.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._forward = layer.forward

    def __call__(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Return the layer's output, [1, T, hidden_size]."""
        output: torch.Tensor = self._forward(hidden_states, positions=kwargs["position_ids"], **kwargs)
        return output


class Llama4Forward(RotaryForward):
    """Computes a Llama 4 attention module."""

    def __call__(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        positions: torch.Tensor,
        **kwargs: object,
    ) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size].

        Args:
            positions: position of each token in its sequence, [1, T].
        """
        module = self._module
        projections = (module.q_proj, module.k_proj, module.v_proj)
        query, key, value = (each(hidden_states).unflatten(2, (-1, module.head_dim)) for each in projections)
        if module.use_rope:
            query, key = self._rotate(query, key, position_embeddings)
        if hasattr(module, "qk_norm"):
            query, key = module.qk_norm(query), module.qk_norm(key)
        if module.attn_temperature_tuning and not module.use_rope:
            query = (query * self._factors(positions)).to(query.dtype)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        output = self._attend(module, query, key, value, None, scaling=module.scaling)
        return module.o_proj(output.flatten(2)), None

    def _factors(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the factor by which each token's queries are scaled, [1, T, 1, 1]; see arXiv:2501.19399."""
        steps = torch.floor((positions.float() + 1.0) / self._module.floor_scale)
        return (torch.log1p(steps) * self._module.attn_scale + 1.0)[..., None, None]
