"""What tells an ordinary module from one that only looks like it: where it comes from, and what it computes.

A module that is to be replaced is run on random input beside its replacement, on the device and in the dtype that it
will serve in. One that gives something else, or hands something else to attention, stays.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from llmfw.core.engine.hf_attention import IMPLEMENTATION

NUM_TOKENS = 2
TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Of the distance of two results, relative to their norm: roundings in another order."""


def no_kernels(device: str, dtype: torch.dtype) -> str | None:
    """Return why the kernels cannot run, as a sentence, or None if they can."""
    if dtype not in TOLERANCES:
        return f"its kernels are not tested with {str(dtype).removeprefix('torch.')}"
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if interpreted and dtype == torch.bfloat16:
        return "Triton's interpreter computes bfloat16 wrong"
    if device.startswith("cuda") or interpreted:
        return None
    return "its kernels run on cuda"


def is_ordinary(module: nn.Module, suffix: str) -> bool:
    """Return whether a module is one of transformers' own, of a class with this ending, and without hooks."""
    kind = type(module)
    return (
        kind.__module__.startswith("transformers.models.")
        and kind.__name__.endswith(suffix)
        and is_untouched(module)
    )


def is_untouched(module: nn.Module) -> bool:
    """Return whether calling a module does what its class says, and no more."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return "forward" not in vars(module) and not any(hooks)


def adopt(new: nn.Module, old: nn.Module) -> None:
    """Give a module the children, under their names, and the plain attributes of the one that it replaces."""
    for name, child in old._modules.items():
        new.add_module(name, child)
    for name, value in vars(old).items():
        if not name.startswith("_"):
            setattr(new, name, value)


def replace(model: nn.Module, names: dict[str, nn.Module]) -> int:
    """Put modules where those of these names stand, from the model on; return how many."""
    for name, new in names.items():
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)
    return len(names)


def random_input(*shape: int, like: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return normally distributed numbers, always the same for one shape, on a tensor's device and in its dtype."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), device="cpu")
    return (numbers * scale).to(like.device, like.dtype)


def agree(theirs: Any, ours: torch.Tensor) -> bool:
    """Return whether two results are the same tensor but for roundings."""
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return False
    distance = (theirs.double() - ours.double()).norm()
    return bool(distance <= TOLERANCES[ours.dtype] * theirs.double().norm())


def uses_our_attention(module: nn.Module) -> bool:
    """Return whether an attention module hands its work to the step that comes with each call."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == IMPLEMENTATION


class Recording:
    """A step in which each token sees its own value only, and that keeps what attention was handed."""

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
        self.given = (query, key, value)
        self.mask = attention_mask
        self.keywords = kwargs
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2)


def attention_input(width: int, head_dim: int, like: torch.Tensor) -> dict[str, Any]:
    """Return what an attention module or a layer is called with, but for the step: a few random tokens.

    They are small, so that what a layer adds to them is not lost in them.
    """
    angles = random_input(1, NUM_TOKENS, head_dim, like=like).float()
    return {
        "hidden_states": random_input(1, NUM_TOKENS, width, like=like, scale=0.05),
        "position_embeddings": (angles.cos().to(like.dtype), angles.sin().to(like.dtype)),
        "attention_mask": None,
    }
