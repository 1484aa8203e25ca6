"""Adapters of families whose attention modules compute attention in a method `_attn`.

`_attn` receives queries, keys and values [1, heads, T, head_dim], projected and with positions applied. It
returns the attention output in the same layout, and the attention weights. The rest of the module stays
transformers' own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .small_configs import small_configs

AttentionMethod = Callable[..., tuple[torch.Tensor, None]]


def attention_method(
    module: nn.Module, attend: Attend, *, scaling: float | None = None, sliding_window: int | None = None
) -> AttentionMethod:
    """Return a replacement for the method `_attn` of a module.

    Args:
        scaling, sliding_window: as in `Attend`.
    """

    def attn(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, None]:
        # With a window, the mask is incomplete: these families hide the tokens before the window in `_attn`.
        mask = attention_mask if sliding_window is None else None
        query, key = query.to(value.dtype), key.to(value.dtype)  # CodeGen rotates in float32
        output = attend(module, query, key, value, mask, scaling=scaling, sliding_window=sliding_window)
        return output.transpose(1, 2), None

    return attn


def attention_modules(model: nn.Module) -> Iterator[Any]:
    """Yield the modules of a model that have a method `_attn`."""
    return (module for module in model.modules() if hasattr(module, "_attn"))


class AttentionMethodAdapter(ModelAdapter):
    """Replaces the method `_attn` of each attention module."""

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the method."""
        for module in attention_modules(model):
            module._attn = attention_method(module, attend)


class GPTJAdapter(AttentionMethodAdapter):
    """Adapts GPT-J."""

    model_types = ("gptj",)
    conformance = small_configs("gptj")


class CodeGenAdapter(AttentionMethodAdapter):
    """Adapts CodeGen."""

    model_types = ("codegen",)
    conformance = small_configs("codegen")


class GPTNeoXJapaneseAdapter(AttentionMethodAdapter):
    """Adapts GPT-NeoX Japanese."""

    model_types = ("gpt_neox_japanese",)
    conformance = small_configs("gpt_neox_japanese")
