"""Adapter of Doge: a number that is computed from each token's value is added to the scores of its key.

The number becomes a part of the key, and queries get ones in its place. Beyond `keep_window_size` tokens, Doge
attends only to the tokens with the largest numbers; llmfw serves sequences up to that length.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from llmfw.core import Attend, ModelAdapter

from .attention_forward import RotaryForward
from .small_configs import small_configs


class DogeAdapter(ModelAdapter):
    """Gives attention modules a `forward` with wider queries and keys, in place of a mask."""

    model_types = ("doge",)
    conformance = small_configs("doge")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of attention modules."""
        from transformers.models.doge.modeling_doge import DogeAttention, apply_rotary_pos_emb

        for module in model.modules():
            if isinstance(module, DogeAttention):
                module.forward = DogeForward(module, attend, apply_rotary_pos_emb)


class DogeForward(RotaryForward):
    """Computes a Doge attention module."""

    def __call__(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        **kwargs: object,
    ) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size]."""
        module = self._module
        query, key, value = (
            each(hidden_states).unflatten(2, (-1, module.head_dim))
            for each in (module.q_proj, module.k_proj, module.v_proj)
        )
        added = torch.exp(module.A * functional.softplus(module.dt_proj(value.flatten(2))))
        query, key, value = (
            each.transpose(1, 2) for each in (module.q_norm(query), module.k_norm(key), value)
        )
        query, key = self._rotate(query, key, *position_embeddings)
        query = torch.cat([query, torch.ones_like(query[..., :2])], dim=-1)
        key = torch.cat([key, self._columns(added)], dim=-1)
        output = self._attend(module, query, key, value, attention_mask, scaling=module.scaling)
        return module.o_proj(output.flatten(2)), None

    def _columns(self, added: torch.Tensor) -> torch.Tensor:
        """Return columns of the keys, [1, kv_heads, T, 2], that add [1, T, kv_heads] to the scores.

        The second column has what rounding takes from the first one.
        """
        unscaled = added.float().transpose(1, 2) / self._module.scaling
        first = unscaled.to(added.dtype)
        return torch.stack([first, (unscaled - first.float()).to(added.dtype)], dim=-1)
