"""Adapter of DiffLlama: two attentions with the same queries and keys, over two halves of the values' heads.

They are computed at once, as one attention whose values are twice as wide.
"""

from __future__ import annotations

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .attention_forward import RotaryForward
from .small_configs import small_configs


class DiffLlamaAdapter(ModelAdapter):
    """Gives attention modules a `forward` that computes attention once."""

    model_types = ("diffllama",)
    conformance = small_configs("diffllama")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of attention modules."""
        from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, apply_rotary_pos_emb

        for module in model.modules():
            if isinstance(module, DiffLlamaAttention):
                module.forward = DiffLlamaForward(module, attend, apply_rotary_pos_emb)


class DiffLlamaForward(RotaryForward):
    """Computes a DiffLlama attention module."""

    def __call__(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        **kwargs: object,
    ) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size]."""
        module = self._module
        projections = (module.q_proj, module.k_proj, module.v_proj)
        query, key, value = (
            each(hidden_states).unflatten(2, (-1, module.head_dim)).transpose(1, 2) for each in projections
        )
        query, key = self._rotate(query, key, *position_embeddings)
        both = torch.cat([half.repeat(1, 2, 1, 1) for half in value.chunk(2, dim=1)], dim=-1)
        output = self._attend(module, query, key, both, attention_mask)
        first, second = output.chunk(2, dim=2)
        factor = self._factor().to(query.dtype) + module.lambda_init
        output = (1 - module.lambda_init) * module.groupnorm(first - factor * second)
        return module.o_proj(output.flatten(2)), None

    def _factor(self) -> torch.Tensor:
        """Return the learned part of the factor of the second half of the heads, []."""
        module = self._module
        pairs = ((module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2))
        first, second = (
            torch.exp((query * key).sum(dtype=torch.float32)).to(query.dtype) for query, key in pairs
        )
        return first - second
