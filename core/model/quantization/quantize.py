"""Quantizes a loaded model: its linear layers, its head, and embeddings that are tied to the head.

Norms, biases, untied embeddings and modules other than plain `nn.Linear`s stay unchanged. A model whose
weights are mostly in such modules is refused. Independent of the code that computes with the quantized
weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmfw.core.base.errors import ModelError

from .modules import QuantizedEmbedding, QuantizedLinear, QuantizedWeight
from .schemes import HEAD, Scheme

LEAST_SHARE = 0.5
"""Minimum fraction of a model's weights, not counting embeddings and head, that must be in linear layers."""


@dataclass(frozen=True, slots=True)
class _ModuleRef:
    """A reference to a module by its parent and its name in the parent. Can replace the module."""

    parent: nn.Module
    name: str

    @property
    def module(self) -> nn.Module:
        return self.parent.get_submodule(self.name)

    def put(self, module: nn.Module) -> None:
        setattr(self.parent, self.name, module)


def check_unquantized(hf_config: Any, model: str) -> None:
    """Raise ModelError for a checkpoint that is already quantized."""
    found = getattr(hf_config, "quantization_config", None)
    if found is not None:
        kind = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
        shown = getattr(kind, "value", kind)
        raise ModelError(
            f"model {model!r} is quantized already ({shown}) and is served as it is: leave out --quantization"
        )


@torch.inference_mode()
def quantize(model: nn.Module, scheme: Scheme) -> int:
    """Quantize a model in place; return the number of replaced modules.

    Raises:
        ModelError: too small a fraction of the weights can be quantized.
    """
    _check_share(model, scheme)
    refs = list(_linears(model))
    embedding = _tied_embedding(model)
    head = _output(model)
    for ref in refs:
        linear = ref.module
        assert isinstance(linear, nn.Linear)
        is_head = linear is head
        weight = QuantizedWeight.of(linear.weight, HEAD if is_head else scheme)
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)
        ref.put(QuantizedLinear(weight, bias))
        if is_head and embedding is not None:
            embedding.put(QuantizedEmbedding(weight))
    return len(refs) + (embedding is not None)


def num_bytes(model: nn.Module) -> int:
    """Return the size of a model's weights in bytes. Quantized weights count with their codes and scales."""
    quantized = {module for module in model.modules() if isinstance(module, QuantizedWeight)}
    codes = sum(buffer.nbytes for module in quantized for buffer in module.buffers())
    return codes + sum(parameter.nbytes for parameter in model.parameters())


def planned_size(model: nn.Module, scheme: Scheme) -> tuple[int, int]:
    """Return what `quantize` would produce: the size of codes and scales in bytes, and the number of weights
    that stay unchanged.

    The model may be on the meta device.

    Raises:
        ModelError: as in `quantize`.
    """
    _check_share(model, scheme)
    head, is_tied = _output(model), _tied_embedding(model) is not None
    codes, replaced = 0, 0
    for ref in _linears(model):
        linear = ref.module
        assert isinstance(linear, nn.Linear)
        is_head = linear is head
        codes += (HEAD if is_head else scheme).num_bytes(linear.out_features, linear.in_features)
        if not is_head or is_tied or _own_weight(model, linear):
            replaced += linear.weight.numel()
    return codes, sum(parameter.numel() for parameter in model.parameters()) - replaced


def _linears(model: nn.Module) -> Iterator[_ModuleRef]:
    seen: set[int] = set()
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            hooks = (*child._forward_hooks, *child._forward_pre_hooks)
            if type(child) is nn.Linear and not hooks and id(child) not in seen:
                seen.add(id(child))
                yield _ModuleRef(parent, name)


def _output(model: Any) -> nn.Module | None:
    found = model.get_output_embeddings()
    return found if type(found) is nn.Linear else None


def _tied_embedding(model: Any) -> _ModuleRef | None:
    """Return the embedding layer if it shares the weight of the head and can be quantized; else None."""
    embedding, head = model.get_input_embeddings(), _output(model)
    if head is None or type(embedding) is not nn.Embedding or embedding.max_norm is not None:
        return None
    if embedding.weight is not head.weight or embedding._forward_hooks or embedding._forward_pre_hooks:
        return None
    return next(
        _ModuleRef(parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if child is embedding
    )


def _own_weight(model: Any, head: nn.Linear) -> bool:
    """Return whether the head has a weight of its own, not shared with the embedding layer."""
    embedding = model.get_input_embeddings()
    return getattr(embedding, "weight", None) is not head.weight


def _check_share(model: Any, scheme: Scheme) -> None:
    embedding, head = model.get_input_embeddings(), _output(model)
    beside = {id(getattr(module, "weight", None)) for module in (embedding, head) if module is not None}
    weights = {id(p): p.numel() for p in model.parameters() if p.dim() > 1 and id(p) not in beside}
    taken = {id(ref.module.weight) for ref in _linears(model)}
    share = sum(size for key, size in weights.items() if key in taken) / max(1, sum(weights.values()))
    if share < LEAST_SHARE:
        raise ModelError(
            f"{type(model).__name__} cannot be quantized by --quantization {scheme.name}: only {share:.0%} of its "
            "weights are in linear layers (experts of a mixture are not); leave it out"
        )
