"""Helps module passes to check that a module is transformers' own, and that a replacement computes the same.

A pass runs a module and its replacement on the same random input, on the device and in the dtype of serving.
A pass must not use a replacement that has different results, or passes different tensors to attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..attention.hf_attention import IMPLEMENTATION

NUM_TOKENS = 2
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Maximum distance between two results, relative to their norm. Different orders of operations round
differently."""


def is_untouched(module: nn.Module) -> bool:
    """Return whether a module has no hooks and no `forward` of its own.

    If so, only the module's class defines what a call does.
    """
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return "forward" not in vars(module) and not any(hooks)


def is_plain(linear: nn.Linear) -> bool:
    """Return whether a linear layer is unmodified (see `is_untouched`) and has a floating-point weight."""
    weight = linear._parameters.get("weight")
    return is_untouched(linear) and weight is not None and weight.is_floating_point()


def is_of_transformers(module: nn.Module) -> bool:
    """Return whether a module is untouched (see `is_untouched`) and its class is one of transformers'.

    Returns False for subclasses defined elsewhere.
    """
    return type(module).__module__.startswith("transformers.models.") and is_untouched(module)


def uses_our_attention(module: nn.Module) -> bool:
    """Return whether an attention module calls llmfw's attention (`llmfw_step`)."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == IMPLEMENTATION


def random_input(*shape: int, like: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return normally distributed numbers, with the device and dtype of `like`.

    Equal shapes give equal numbers.
    """
    numbers = torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float32, device="cpu"
    )
    return (numbers * scale).to(like.device, like.dtype)


def attention_input(width: int, head_dim: int, like: torch.Tensor) -> dict[str, Any]:
    """Return random arguments to call an attention module or a decoder layer with, for a few tokens.

    The caller must add `llmfw_step`.

    The hidden states are small, so that the layer's contribution to the residual stream remains visible in
    the output.

    Args:
        width: width of hidden states, which are [1, T, width].
        head_dim: width of rotary embeddings: cosines and sines are [1, T, head_dim].
    """
    angles = random_input(1, NUM_TOKENS, head_dim, like=like).float()
    return {
        "hidden_states": random_input(1, NUM_TOKENS, width, like=like, scale=0.05),
        "position_embeddings": (angles.cos().to(like.dtype), angles.sin().to(like.dtype)),
        "attention_mask": None,
    }


def agree(theirs: Any, ours: torch.Tensor) -> bool:
    """Return whether two results are equal except for rounding."""
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return False
    distance = (theirs.double() - ours.double()).norm()
    return bool(distance <= TOLERANCES[ours.dtype] * theirs.double().norm())


class Recording:
    """Handles a single call of attention, and records its arguments. Each token attends only to itself."""

    def __init__(self) -> None:
        self.given: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self.mask: torch.Tensor | None = None
        self.keywords: dict[str, Any] = {}

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Record the arguments; return each token's value as the attention output, [1, T, heads,
        v_head_dim]."""
        self.given = (query.clone(), key.clone(), value.clone())
        self.mask = attention_mask
        self.keywords = kwargs
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2)

    def has_the_same(self, other: Recording) -> bool:
        """Return whether another call passed the same tensors to attention, except for rounding."""
        if self.given is None or other.given is None:
            return False
        return all(map(agree, self.given, other.given))
