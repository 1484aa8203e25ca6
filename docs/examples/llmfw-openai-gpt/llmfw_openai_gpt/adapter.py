"""Makes OpenAI GPT, whose layers have attention code of their own, use llmfw's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn
from transformers.models.openai.modeling_openai import Attention

from llmfw.core import Attend, ModelAdapter

SIZES = {"model_type": "openai-gpt", "vocab_size": 96, "n_positions": 64, "n_embd": 64, "n_layer": 2}


class OpenAIGPTAdapter(ModelAdapter):
    """Replaces the method of each layer that multiplies queries, keys and values. All else stays transformers' code."""

    model_types = ("openai-gpt",)
    conformance: ClassVar = {"configs": [{"n_head": 4, **SIZES}, {"n_head": 2, "afn": "silu", **SIZES}]}

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        layers = [module for module in model.modules() if isinstance(module, Attention)]
        for i, layer in enumerate(layers):
            layer.layer_idx = i  # modules of newer models have one; those of this model do not
            layer._attn = attention(layer, attend)


def attention(layer: Attention, attend: Attend) -> Callable[..., list[torch.Tensor]]:
    """Return a replacement for the layer's `_attn`."""
    scaling = None if layer.scale else 1.0

    def attn(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attention_mask: Any = None,
        output_attentions: bool = False,
    ) -> list[torch.Tensor]:
        # q and v are [1, heads, T, head_dim]; this model's keys come as [1, heads, head_dim, T]
        return [attend(layer, q, k.transpose(2, 3), v, attention_mask, scaling=scaling).transpose(1, 2)]

    return attn
