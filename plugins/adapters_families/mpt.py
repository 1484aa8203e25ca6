"""Adapter of MPT, whose attention has linear biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .alibi import LinearBias, PositionDigits
from .small_configs import small_configs

if TYPE_CHECKING:
    from transformers.models.mpt.modeling_mpt import MptAttention


class MptAdapter(ModelAdapter):
    """Gives each attention module a `forward` that calls llmfw's attention."""

    model_types = ("mpt",)
    conformance = small_configs("mpt")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the `forward` of the attention modules."""
        from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor

        positions = GivenMask(model)
        for module in model.modules():
            if isinstance(module, MptAttention):
                device = module.out_proj.weight.device
                biases = build_mpt_alibi_tensor(module.n_heads, 2, device=device)[:, 0]
                bias = LinearBias(attend, biases[:, 1] - biases[:, 0], module.softmax_scale, positions)
                module.forward = MptForward(module, bias)


class GivenMask(PositionDigits):
    """Positions of the tokens of a call, to which it adds a mask, because MPT cannot do without one."""

    def __call__(self, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the positions of a call and their digits; return the arguments for the model, with a mask."""
        args, kwargs = super().__call__(model, args, kwargs)
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.value.device)
        return args, {"attention_mask": mask} | kwargs


class MptForward:
    """Computes an MPT attention module.

    Args:
        module: the module.
        attend: attention with the module's biases.
    """

    def __init__(self, module: MptAttention, attend: LinearBias) -> None:
        self._module = module
        self._attend = attend

    def __call__(self, hidden_states: torch.Tensor, **kwargs: object) -> tuple[torch.Tensor, None]:
        """Return the module's output, [1, T, hidden_size]."""
        fused = self._module.Wqkv(hidden_states)
        if limit := self._module.clip_qkv:
            fused = fused.clamp(min=-limit, max=limit)
        parts = (part.unflatten(2, (self._module.n_heads, -1)).transpose(1, 2) for part in fused.chunk(3, 2))
        output = self._attend(self._module, *parts)
        return self._module.out_proj(output.flatten(2)), None
