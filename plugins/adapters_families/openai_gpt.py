"""Adapter of the first GPT, whose layers have no index and hide later tokens by a mask of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from llmfw.core import Attend, ModelAdapter

from .small_configs import small_configs

if TYPE_CHECKING:
    from transformers.models.openai.modeling_openai import Attention


class OpenAIGPTAdapter(ModelAdapter):
    """Replaces the method `_attn` of each attention module, and deletes its mask [1, 1, context, context]."""

    model_types = ("openai-gpt",)
    conformance = small_configs("openai-gpt")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the method, and number the layers."""
        from transformers.models.openai.modeling_openai import Attention

        modules = [module for module in model.modules() if isinstance(module, Attention)]
        for index, module in enumerate(modules):
            module.layer_idx = index
            module._attn = _attention(module, attend)
            del module.bias


def _attention(module: Attention, attend: Attend) -> Callable[..., list[torch.Tensor]]:
    """Return a replacement for the method `_attn` of a module, which receives keys as [1, heads, head_dim, T]."""
    scaling = None if module.scale else 1.0

    def attn(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: object
    ) -> list[torch.Tensor]:
        output = attend(module, query, key.transpose(2, 3), value, None, scaling=scaling)
        return [output.transpose(1, 2)]

    return attn
