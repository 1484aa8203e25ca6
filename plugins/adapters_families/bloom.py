"""Adapter of BLOOM, whose attention has linear biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .alibi import LinearBias, PositionDigits
from .small_configs import small_configs

if TYPE_CHECKING:
    from transformers.models.bloom.modeling_bloom import BloomAttention


class BloomAdapter(ModelAdapter):
    """Gives each attention module a `forward` that calls llmfw's attention."""

    model_types = ("bloom",)
    conformance = small_configs("bloom")

    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        """Refuse a slow way of transformers to compute projections, which leaves out their biases."""
        is_slow = config.pretraining_tp > 1 and config.slow_but_exact
        return "its projections have no biases (slow_but_exact in its config)" if is_slow else None

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of the attention modules."""
        from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

        positions = PositionDigits(model, takes_mask=False)
        for module in model.modules():
            if isinstance(module, BloomAttention):
                ones = torch.ones(1, 2, device=module.dense.weight.device)
                slopes = build_alibi_tensor(ones, module.num_heads, torch.float32)[:, 0, 1]
                bias = LinearBias(attend, slopes, module.inv_norm_factor, positions)
                module.forward = BloomForward(module, bias)


class BloomForward:
    """Computes a BLOOM attention module.

    Args:
        module: the module.
        attend: attention with the module's biases.
    """

    def __init__(self, module: BloomAttention, attend: LinearBias) -> None:
        self._module = module
        self._attend = attend

    def __call__(
        self, hidden_states: torch.Tensor, residual: torch.Tensor, **kwargs: object
    ) -> tuple[torch.Tensor, None]:
        """Return the sum of the module's output and its residual, [1, T, hidden_size]."""
        query, key, value = self._module._reshape(self._module.query_key_value(hidden_states))
        output = self._attend(self._module, query, key, value)
        return residual + self._module.dense(output.flatten(2)), None
