"""For module passes: whether a module is one of transformers' own, and whether another computes the same in its place.

What a module is to be replaced by is run beside it on random input, on the device and in the dtype that it will serve in.
One that gives something else, or hands something else to attention, does not take its place. Knows nothing of what the
modules are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .hf_attention import IMPLEMENTATION

NUM_TOKENS = 2
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Of the distance of two results, relative to their norm: roundings in another order."""


def is_untouched(module: nn.Module) -> bool:
    """Return whether calling a module does what its class says, and no more: it has no hooks and no `forward` of its own."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return "forward" not in vars(module) and not any(hooks)


def is_plain(linear: nn.Linear) -> bool:
    """Return whether a linear layer is untouched and has an ordinary weight.

    Libraries that load quantised checkpoints leave the class as it is, and replace `forward` and the parameters.
    """
    weight = linear._parameters.get("weight")
    return is_untouched(linear) and weight is not None and weight.is_floating_point()


def is_of_transformers(module: nn.Module) -> bool:
    """Return whether a module's class is one of transformers' models', not derived from it, and the module untouched."""
    return type(module).__module__.startswith("transformers.models.") and is_untouched(module)


def uses_our_attention(module: nn.Module) -> bool:
    """Return whether an attention module hands its work to the step that comes with each call, as `llmfw_step`."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == IMPLEMENTATION


def random_input(*shape: int, like: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return normally distributed numbers, always the same for one shape, on a tensor's device and in its dtype."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), device="cpu")
    return (numbers * scale).to(like.device, like.dtype)


def attention_input(width: int, head_dim: int, like: torch.Tensor) -> dict[str, Any]:
    """Return what an attention module or a decoder layer is called with, but for the step: a few random tokens.

    They are small, so that what a layer adds to them is not lost in them.

    Args:
        width: of hidden states, which are [1, T, width].
        head_dim: of rotary embeddings: cosines and sines are [1, T, head_dim].
    """
    angles = random_input(1, NUM_TOKENS, head_dim, like=like).float()
    return {
        "hidden_states": random_input(1, NUM_TOKENS, width, like=like, scale=0.05),
        "position_embeddings": (angles.cos().to(like.dtype), angles.sin().to(like.dtype)),
        "attention_mask": None,
    }


def agree(theirs: Any, ours: torch.Tensor) -> bool:
    """Return whether two results are the same tensor but for roundings."""
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return False
    distance = (theirs.double() - ours.double()).norm()
    return bool(distance <= TOLERANCES[ours.dtype] * theirs.double().norm())


class Recording:
    """A step for one call, in which each token sees its own value only, and that keeps what attention was handed.

    Attributes:
        given: copies of query, key and value, [1, heads, T, head_dim] each; None: attention was not called.
        mask: that came with them.
        keywords: whatever else did.
    """

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
        """Return [1, T, heads, v_head_dim]."""
        self.given = (query.clone(), key.clone(), value.clone())
        self.mask = attention_mask
        self.keywords = kwargs
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2)

    def has_the_same(self, other: Recording) -> bool:
        """Return whether attention was handed the same tensors in another call, but for roundings."""
        if self.given is None or other.given is None:
            return False
        return all(map(agree, self.given, other.given))
