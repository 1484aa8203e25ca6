"""Quantizes a loaded model: its linear layers, its head, and embeddings that are tied to the head.

Norms, biases, untied embeddings and modules other than plain `nn.Linear`s stay unchanged, as do layers that the
scheme leaves out. A model whose weights are mostly in such modules is refused. Independent of the code that
computes with the quantized weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.quantization_scheme import LinearLayer

from .chosen_scheme import ChosenScheme
from .layer_trial import EmbeddingTrial

LEAST_SHARE = 0.5
"""Minimum fraction of a model's weights, not counting embeddings and head, that must be in linear layers that are
quantized."""


@dataclass(frozen=True, slots=True)
class QuantizedSize:
    """The number and the size of a model's quantized modules.

    Attributes:
        num_modules: number of replaced modules.
        num_bytes: size of the quantized weights in bytes, with scales and without biases.
    """

    num_modules: int = 0
    num_bytes: int = 0


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


@dataclass(frozen=True, slots=True)
class _Selected:
    """A linear layer to quantize.

    Attributes:
        ref: the layer in the model.
        layer: description for the scheme.
        num_bytes: size of the quantized weight in bytes.
        embedding: embedding layer that shares the layer's weight and is replaced, too; None: there is none.
    """

    ref: _ModuleRef
    layer: LinearLayer
    num_bytes: int
    embedding: _ModuleRef | None

    @property
    def linear(self) -> nn.Linear:
        linear = self.ref.module
        assert isinstance(linear, nn.Linear)
        return linear


def check_quantizable(
    scheme: ChosenScheme | None, hf_config: Any, model: str, device: torch.device, dtype: torch.dtype
) -> None:
    """Check that a checkpoint can be quantized by a scheme, before its weights are read.

    Raises:
        ModelError: the checkpoint is already quantized.
        ConfigError: the scheme does not support the device or dtype.
    """
    if scheme is not None:
        _check_unquantized(hf_config, model)
        scheme.check_support(device, dtype)


def _check_unquantized(hf_config: Any, model: str) -> None:
    found = getattr(hf_config, "quantization_config", None)
    if found is not None:
        kind = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
        shown = getattr(kind, "value", kind)
        raise ModelError(
            f"model {model!r} is quantized already ({shown}) and is served as it is: leave out --quantization"
        )


@torch.inference_mode()
def quantize(model: nn.Module, scheme: ChosenScheme) -> QuantizedSize:
    """Quantize a model in place.

    Raises:
        ModelError: too small a fraction of the weights can be quantized.
        ComponentError: the scheme failed.
    """
    num_modules = num_bytes = 0
    for each in _select(model, scheme):
        weight, bias = each.linear.weight.detach(), each.linear.bias
        trial = None if each.embedding is None else EmbeddingTrial(weight)
        module = scheme.quantize(each.layer, each.num_bytes, weight, None if bias is None else bias.detach())
        del weight  # frees it as soon as the layer is replaced
        each.ref.put(module)
        if each.embedding is not None and trial is not None:
            each.embedding.put(scheme.embedding(each.layer, module, trial))
        num_modules += 1 if each.embedding is None else 2
        num_bytes += each.num_bytes
    return QuantizedSize(num_modules, num_bytes)


def planned_size(model: nn.Module, scheme: ChosenScheme, dtype: torch.dtype | None = None) -> tuple[int, int]:
    """Return the planned size of the quantized weights in bytes, and the number of unchanged weights.

    `quantize` gives the same numbers.

    The model may be on the meta device.

    Args:
        dtype: dtype of the model when it is served; None: the dtype of its weights.

    Raises:
        ModelError, ComponentError: as in `quantize`.
    """
    num_bytes, replaced = 0, 0
    for each in _select(model, scheme, dtype):
        num_bytes += each.num_bytes
        if each.embedding is not None or not _is_shared(model, each.linear):
            replaced += each.linear.weight.numel()
    return num_bytes, sum(parameter.numel() for parameter in model.parameters()) - replaced


def _select(model: Any, scheme: ChosenScheme, dtype: torch.dtype | None = None) -> list[_Selected]:
    """Return the layers to quantize; raise ModelError if too small a fraction of the weights is in them."""
    output, embedding, outside = _output(model), _tied_embedding(model), _outside_names(model)
    selected = []
    for name, ref in _linears(model):
        linear = ref.module
        assert isinstance(linear, nn.Linear)
        tied = embedding if linear is output else None
        if tied is not None and not scheme.shares_head:
            continue
        is_head = linear is output or name.partition(".")[0] in outside
        layer = LinearLayer(
            name, linear.out_features, linear.in_features, dtype or linear.weight.dtype, is_head=is_head
        )
        num_bytes = scheme.num_bytes(layer)
        if num_bytes is not None:
            selected.append(_Selected(ref, layer, num_bytes, tied))
    _check_share(model, scheme, selected)
    return selected


def _linears(model: nn.Module) -> Iterator[tuple[str, _ModuleRef]]:
    """Yield the plain linear layers of a model with their names."""
    seen: set[int] = set()
    for prefix, parent in list(model.named_modules()):
        for name, child in parent.named_children():
            hooks = (*child._forward_hooks, *child._forward_pre_hooks)
            if type(child) is nn.Linear and not hooks and id(child) not in seen:
                seen.add(id(child))
                yield f"{prefix}.{name}" if prefix else name, _ModuleRef(parent, name)


def _output(model: Any) -> nn.Module | None:
    found = model.get_output_embeddings()
    return found if type(found) is nn.Linear else None


def _outside_names(model: Any) -> set[str]:
    """Return the names of a classification head's modules; empty if the model has no such head."""
    if model.get_output_embeddings() is not None or model.base_model is model:
        return set()
    return {name for name, child in model.named_children() if child is not model.base_model}


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


def _is_shared(model: Any, linear: nn.Linear) -> bool:
    """Return whether a layer shares its weight with the embedding layer."""
    embedding = model.get_input_embeddings()
    return getattr(embedding, "weight", None) is linear.weight


def _check_share(model: Any, scheme: ChosenScheme, selected: list[_Selected]) -> None:
    embedding, head = model.get_input_embeddings(), _output(model)
    beside = {id(getattr(module, "weight", None)) for module in (embedding, head) if module is not None}
    weights = {id(p): p.numel() for p in model.parameters() if p.dim() > 1 and id(p) not in beside}
    taken = {id(each.linear.weight) for each in selected}
    share = sum(size for key, size in weights.items() if key in taken) / max(1, sum(weights.values()))
    if share < LEAST_SHARE:
        raise ModelError(
            f"{type(model).__name__} cannot be quantized by --quantization {scheme.entry.name}: only {share:.0%} of its "
            "weights are in linear layers that it takes (experts of a mixture are not); leave it out"
        )
