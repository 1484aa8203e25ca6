"""Adapter of GPT-Neo, whose layers alternate between attention to all earlier tokens and to a local window."""

from __future__ import annotations

from torch import nn

from llmfw.core import Attend, ModelAdapter

from .attention_method import attention_method, attention_modules
from .small_configs import small_configs


class GPTNeoAdapter(ModelAdapter):
    """Replaces the method `_attn` of each attention module. GPT-Neo does not scale its scores."""

    model_types = ("gpt_neo",)
    conformance = small_configs("gpt_neo")

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        """Replace the method, and delete its mask [1, 1, context, context] from each module."""
        for module in attention_modules(model):
            window = module.config.window_size if module.attention_type == "local" else None
            module.layer_idx = module.layer_id
            module._attn = attention_method(module, attend, scaling=1.0, sliding_window=window)
            del module.bias
