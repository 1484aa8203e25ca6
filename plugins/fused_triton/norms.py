"""RMS norms fused with the residual additions before them.

A decoder layer of a known class is replaced by one with the same submodules. If a norm follows a residual
addition, the new layer lets the norm also compute the addition. The norm keeps the normalized sum until it is
called with the sum. The model's own code remains as transformers wrote it and remains correct: a norm that is
called with any other tensor normalizes that tensor.
"""

from __future__ import annotations

import torch
from torch import nn

from llmfw.core import ModulePass
from llmfw.core.model.trial.module_trial import (
    Recording,
    agree,
    attention_input,
    random_input,
    uses_our_attention,
)

from .ops import MAX_WIDTH, HeadNorm, add_rms_norm, rms_norm
from .recognition import adopt, is_ordinary, no_kernels, replace

FAMILIES = ("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe")
"""Model families whose decoder layers have the form that `FusedLayer` computes."""

PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


class NormPass(ModulePass):
    """Replaces RMS norms with `FusedNorm`s, and decoder layers with `FusedLayer`s."""

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why the kernels cannot run, or None."""
        return no_kernels(device, dtype)

    @torch.inference_mode()
    def apply(self, model: nn.Module) -> int:
        """Replace the norms, then the layers that have such norms; return the number of modules replaced."""
        others = {name: module for name, module in model.named_modules() if not isinstance(module, FusedNorm)}
        found = {name: read_norm(module) for name, module in others.items() if name}
        count = replace(model, {name: FusedNorm(norm) for name, norm in found.items() if norm})
        for decoder in list(model.modules()):
            count += _replace_layers(decoder)
        return count


class FusedNorm(nn.Module):
    """An RMS norm that can also add the residual.

    Args:
        norm: weight and eps. The weight is shared, not copied.
    """

    def __init__(self, norm: HeadNorm) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps = norm.eps
        self.from_one = norm.from_one
        self._total: torch.Tensor | None = None
        self._normed: torch.Tensor | None = None

    def add(self, residual: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return residual + hidden, [..., width], and keep the norm of this sum for the next `forward`."""
        total, self._normed = add_rms_norm(hidden, residual, self.weight, self.eps, self.from_one)
        self._total = total
        return total

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the norm of `hidden`, [..., width]; the kept norm if `hidden` is the result of `add`."""
        ready, is_ready = self._normed, hidden is self._total
        self._total = self._normed = None
        if is_ready and ready is not None:
            return ready
        return rms_norm(hidden, self.weight, self.eps, self.from_one)

    def extra_repr(self) -> str:
        """Return the attributes that `repr` shows after the class name."""
        return f"{len(self.weight)}, eps={self.eps}, from_one={self.from_one}"


class FusedLayer(nn.Module):
    """A pre-norm decoder layer: residual + attention, then residual + feed-forward.

    Args:
        layer: layer whose submodules are used; both of its norms must be `FusedNorm`s.
    """

    self_attn: nn.Module
    mlp: nn.Module
    input_layernorm: FusedNorm
    post_attention_layernorm: FusedNorm

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        adopt(self, layer)
        # In a tuple, so that it is not a submodule: the norm belongs to the next layer, or to the model.
        self._following: tuple[FusedNorm, ...] = ()

    def set_following(self, norm: FusedNorm) -> None:
        """Set the norm that receives this layer's output."""
        self._following = (norm,)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: object = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        """Return the next layer's input, [..., width]. Takes the same arguments as transformers' layers."""
        attended, _ = self.self_attn(
            hidden_states=self.input_layernorm(hidden_states),
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
            position_embeddings=position_embeddings,
            **kwargs,
        )
        residual = self.post_attention_layernorm.add(hidden_states, attended)
        fed = self.mlp(self.post_attention_layernorm(residual))
        for norm in self._following:
            return norm.add(residual, fed)
        return residual + fed


def read_norm(module: nn.Module) -> HeadNorm | None:
    """Return the weight and eps of an RMS norm, or None for any other module.

    Selects modules by class name, then compares their results with the kernel's on ordinary rows, large rows,
    and rows so small that eps matters.
    """
    if isinstance(module, FusedNorm):
        return HeadNorm(module.weight, module.eps, module.from_one)
    if not is_ordinary(module, "RMSNorm") or set(module._parameters) != {"weight"}:
        return None
    weight = module.weight
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, nn.Parameter) or weight.dim() != 1 or len(weight) > MAX_WIDTH:
        return None
    if not isinstance(eps, float) or eps <= 0 or module._modules or module._buffers:
        return None
    rows = torch.cat([random_input(1, len(weight), like=weight, scale=scale) for scale in (eps**0.5, 1, 30)])
    expected = module(rows)
    for from_one in (False, True):
        if all(map(agree, expected, rms_norm(rows, weight, eps, from_one))):
            return HeadNorm(weight, eps, from_one)
    return None


def _replace_layers(decoder: nn.Module) -> int:
    """Replace those layers of a model that can be replaced; return their number."""
    wanted = {f"{family}Model": f"{family}DecoderLayer" for family in FAMILIES}.get(type(decoder).__name__)
    if wanted is None or not is_ordinary(decoder, "Model"):
        return 0
    layers = decoder.layers
    assert isinstance(layers, nn.ModuleList)
    count = 0
    for i, layer in enumerate(layers):
        if type(layer).__name__ == wanted and _can_replace(layer):
            layers[i] = FusedLayer(layer)
            count += 1
    following = [*(getattr(layer, "input_layernorm", None) for layer in layers[1:]), decoder.norm]
    for layer, norm in zip(layers, following, strict=True):
        if isinstance(layer, FusedLayer) and isinstance(norm, FusedNorm):
            layer.set_following(norm)
    return count


def _can_replace(layer: nn.Module) -> bool:
    if not is_ordinary(layer, "DecoderLayer") or set(layer._modules) != PARTS or layer._parameters:
        return False
    first, second, attention = map(
        layer.get_submodule, ("input_layernorm", "post_attention_layernorm", "self_attn")
    )
    head_dim = getattr(attention, "head_dim", None)
    if not isinstance(first, FusedNorm) or not isinstance(second, FusedNorm) or not isinstance(head_dim, int):
        return False
    if not uses_our_attention(attention):
        return False
    given = attention_input(len(first.weight), head_dim, first.weight) | {
        "position_ids": None,
        "use_cache": False,
    }
    theirs, ours = Recording(), Recording()
    expected = layer(**given, llmfw_step=theirs)
    result = FusedLayer(layer)(**given, llmfw_step=ours)
    return agree(expected, result) and set(ours.keywords) == set(theirs.keywords)
