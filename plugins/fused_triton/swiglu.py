"""SwiGLU feed-forward blocks: computes silu(gate) · up in one kernel.

If the projections are merged, the kernel reads their slices of the merged output without a copy.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.activations import SiLUActivation

from llmfw.core import ModulePass
from llmfw.core.model.trial.module_trial import NUM_TOKENS, agree, is_untouched, random_input

from .ops import silu_mul
from .recognition import adopt, is_ordinary, no_kernels, replace

PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}


class SwigluPass(ModulePass):
    """Replaces feed-forward blocks that have gate, up and down projections and SiLU with `FusedSwiglu`s."""

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why the kernels cannot run, or None."""
        return no_kernels(device, dtype)

    @torch.inference_mode()
    def apply(self, model: nn.Module) -> int:
        """Replace those blocks that can be replaced; return their number."""
        blocks = {name: module for name, module in model.named_modules() if name and _can_replace(module)}
        return replace(model, {name: FusedSwiglu(block) for name, block in blocks.items()})


class FusedSwiglu(nn.Module):
    """A SwiGLU block: down(silu(gate(x)) · up(x)).

    Args:
        block: block whose projections are used.
    """

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        adopt(self, block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output for `x`, both [..., width]."""
        output: torch.Tensor = self.down_proj(silu_mul(self.gate_proj(x), self.up_proj(x)))
        return output


def _can_replace(block: nn.Module) -> bool:
    if not is_ordinary(block, "MLP") or set(block._modules) != PARTS or block._parameters:
        return False
    active = block.get_submodule("act_fn")
    if type(active) not in (SiLUActivation, nn.SiLU) or not is_untouched(active):
        return False
    width, weight = getattr(block.gate_proj, "in_features", None), getattr(block.down_proj, "weight", None)
    if not isinstance(width, int) or not isinstance(weight, torch.Tensor):
        return False
    hidden = random_input(NUM_TOKENS, width, like=weight)
    return agree(block(hidden), FusedSwiglu(block)(hidden))
