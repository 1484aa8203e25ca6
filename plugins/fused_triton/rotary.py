"""Attention modules that apply the rotary embedding, and Qwen3's query and key norms, in one kernel.

The projections and the attention interface are called as in transformers. A module of transformers may pass
attention further arguments that are not tensors, such as a window. `RotaryPass` records these arguments in a
trial call of the module, and `FusedAttention` passes them on unchanged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmfw.core import ModulePass
from llmfw.core.model.attention.hf_attention import attend
from llmfw.core.model.trial.module_trial import Recording, agree, attention_input, uses_our_attention

from .norms import read_norm
from .ops import HeadNorm, rotate
from .recognition import adopt, is_ordinary, no_kernels, replace

FAMILIES = ("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe")
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
NORMS = {"q_norm", "k_norm"}


class RotaryPass(ModulePass):
    """Replaces the attention modules of known models with `FusedAttention`s."""

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why the kernels cannot run, or None."""
        return no_kernels(device, dtype)

    @torch.inference_mode()
    def apply(self, model: nn.Module) -> int:
        """Replace those attention modules that can be replaced; return their number."""
        found = {name: _replacement(module) for name, module in model.named_modules() if name}
        return replace(model, {name: new for name, new in found.items() if new is not None})


class FusedAttention(nn.Module):
    """An attention block: projections, fused rotary embedding, attention, output projection.

    Args:
        attention: module whose submodules are used.
        keywords: arguments that `attention` adds when it calls the attention interface, except tensors.
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    o_proj: nn.Module
    head_dim: int
    layer_idx: int

    def __init__(self, attention: nn.Module, keywords: dict[str, Any]) -> None:
        super().__init__()
        adopt(self, attention)
        self._keywords = keywords
        self._norms = _read_norms(attention)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Return the output, [..., width], and None for the attention weights.

        Takes transformers' arguments.
        """
        shape = hidden_states.shape[:-1]
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (
            project(hidden_states).unflatten(-1, (-1, self.head_dim)) for project in projections
        )
        query, key = rotate(query, key, *position_embeddings, norms=self._norms)
        query, key, value = (states.transpose(1, 2) for states in (query, key, value))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        output, weights = attend(self, query, key, value, attention_mask, **self._keywords, **kwargs)
        return self.o_proj(output.reshape(*shape, -1)), weights


def _replacement(attention: nn.Module) -> FusedAttention | None:
    """Return the replacement for a module, or None to keep the module."""
    known = {f"{family}Attention" for family in FAMILIES}
    if type(attention).__name__ not in known or not is_ordinary(attention, "Attention"):
        return None
    parts = set(attention._modules)
    if parts not in (PROJECTIONS, PROJECTIONS | NORMS) or not uses_our_attention(attention):
        return None
    if parts >= NORMS and _read_norms(attention) is None:
        return None
    width, weight = getattr(attention.q_proj, "in_features", None), getattr(attention.o_proj, "weight", None)
    head_dim = getattr(attention, "head_dim", 1)
    if not isinstance(width, int) or not isinstance(weight, torch.Tensor) or head_dim % 2:
        return None
    given = attention_input(width, head_dim, weight)
    theirs, ours = Recording(), Recording()
    expected, _ = attention(**given, llmfw_step=theirs)
    if theirs.given is None or any(isinstance(kept, torch.Tensor) for kept in theirs.keywords.values()):
        return None
    fused = FusedAttention(attention, theirs.keywords)
    result, _ = fused(**given, llmfw_step=ours)
    return fused if agree(expected, result) and theirs.has_the_same(ours) else None


def _read_norms(attention: nn.Module) -> tuple[HeadNorm, HeadNorm] | None:
    if not set(attention._modules) >= NORMS:
        return None
    query, key = (read_norm(attention.get_submodule(name)) for name in ("q_norm", "k_norm"))
    if query is None or key is None or query.from_one != key.from_one:
        return None
    return (query, key) if len(query.weight) == len(key.weight) == attention.head_dim else None
