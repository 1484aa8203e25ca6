"""Weights of a checkpoint with quantized linear layers, dequantized one by one during loading."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.quantized_format import StoredLayer
from llmfw.core.interfaces.weight_loader import StoredTensor

from ..device.devices import gigabytes
from ..files.stored_dtypes import torch_dtype
from ..weights.lazy_tensors import LazyTensor, build_from
from ..weights.weight_source import LoadedWeights, WeightSource
from .chosen_format import ChosenFormat, weight_of

logger = logging.getLogger(__name__)


class QuantizedSource(WeightSource):
    """The weights of a quantized checkpoint, dequantized.

    Args:
        source: the stored tensors.
        make_format: function that builds the checkpoint's format.
    """

    def __init__(self, source: WeightSource, make_format: Callable[[], ChosenFormat]) -> None:
        super().__init__(source.path)
        self.reads_safetensors = source.reads_safetensors
        self._source = source
        self._make_format = make_format

    def stored(self) -> dict[str, StoredTensor]:
        """Return the formats of the dequantized tensors, by name."""
        stored = self._source.stored()
        return _dequantized(self.path, stored, self._make_format().layers(stored))

    def load(
        self,
        auto_class: Any,
        hf_config: Any,
        check: Callable[[Mapping[str, StoredTensor]], None],
        **options: Any,
    ) -> LoadedWeights:
        chosen = self._make_format()
        with self._source.reading() as read:
            stored = self._source.stored()
            layers = chosen.layers(stored)
            dequantized = _dequantized(self.path, stored, layers)
            check(dequantized)
            state = {
                name: LazyTensor(each, partial(chosen.weight, layers[name], read))
                if name in layers
                else LazyTensor(each, partial(_copied, read, name))
                for name, each in dequantized.items()
            }
            module, info = build_from(state, auto_class, hf_config, self.path, **options)
            self._replace_layers(module, chosen, layers, read)
            zeros = [name for name in info["unexpected_keys"] if _is_zero_bias(name, layers, read)]
        info = {**info, "unexpected_keys": set(info["unexpected_keys"]) - set(zeros)}
        _log(chosen, stored, layers, module.dtype)
        kept = {name: each for name, each in dequantized.items() if name not in zeros}
        return LoadedWeights(module, info, kept)

    def _replace_layers(
        self,
        module: nn.Module,
        chosen: ChosenFormat,
        layers: Mapping[str, StoredLayer],
        read: Callable[[str], torch.Tensor],
    ) -> None:
        """Replace linear layers with modules of the format.

        Raises:
            ModelError: the model has no linear layer with a stored name, for example because all experts of a
                mixture are one tensor.
        """
        for layer in (layer for layer in layers.values() if layer.has_module):
            name = _name_in_model(module, layer.name)
            linear = None if name is None else module.get_submodule(name)
            if name is None or type(linear) is not nn.Linear:
                raise ModelError(
                    f"model {self.path!r} cannot be loaded: {layer.name} rounds its inputs by {chosen.entry.name}, and "
                    f"{type(module).__name__} has no linear layer of this name (experts of a mixture are one tensor); take a "
                    "checkpoint with quantized weights alone"
                )
            module.set_submodule(name, chosen.module(layer, linear, read))

    def reading(self) -> AbstractContextManager[Callable[[str], torch.Tensor]]:
        return self._source.reading()

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, torch.Tensor]]:
        return self._source.matching(pattern)

    def version(self) -> str:
        return self._source.version()


def _dequantized(
    path: str, stored: Mapping[str, StoredTensor], layers: Mapping[str, StoredLayer]
) -> dict[str, StoredTensor]:
    """Return the formats of the tensors of a checkpoint, with one weight in place of each layer's tensors.

    Raises:
        ModelError: a tensor in FP8 belongs to no layer, so that it would be taken for the weight itself.
    """
    used = {name for layer in layers.values() for name in layer.tensors.values()}
    plain = {name: tensor for name, tensor in stored.items() if name not in used}
    for name, tensor in plain.items():
        if tensor.dtype.upper().startswith(("F8", "FLOAT8")):
            raise ModelError(
                f"model {path!r} cannot be loaded: {name} is stored in FP8, and has no scale that its format reads; download the model again, or take another "
                "checkpoint of it"
            )
    return plain | {name: weight_of(layer) for name, layer in layers.items()}


def _name_in_model(model: Any, name: str) -> str | None:
    """Return the name in a model of a checkpoint's layer; None if the model lacks the layer.

    The two names may differ by the base model's prefix.
    """
    prefix = f"{model.base_model_prefix}."
    names = dict(model.named_modules(remove_duplicate=False))
    forms = name, f"{prefix}{name}", name.removeprefix(prefix)
    return next((form for form in forms if form in names), None)


def _copied(read: Callable[[str], torch.Tensor], name: str) -> torch.Tensor:
    """Return a copy of a tensor. A weight of the model may be changed in place, and outlives its file."""
    return read(name).clone()


def _is_zero_bias(name: str, layers: Mapping[str, StoredLayer], read: Callable[[str], torch.Tensor]) -> bool:
    """Return whether a tensor is the bias of a quantized layer and holds only zeros.

    Some tools write a bias of zeros for each quantized layer, also if the architecture has none.
    """
    module, _, leaf = name.rpartition(".")
    return leaf == "bias" and f"{module}.weight" in layers and not bool(read(name).any())


def _log(
    chosen: ChosenFormat,
    stored: Mapping[str, StoredTensor],
    layers: Mapping[str, StoredLayer],
    dtype: torch.dtype,
) -> None:
    """Log how much memory dequantizing costs."""
    before = sum(_num_bytes(stored[name]) for layer in layers.values() for name in layer.tensors.values())
    after = sum(layer.out_features * layer.in_features for layer in layers.values()) * dtype.itemsize
    logger.info(
        "Quantized format: %s. %d linear layers are dequantized to %s: %s of memory for %s in the files%s",
        *(chosen.entry.full_name, len(layers), str(dtype).removeprefix("torch.")),
        *(gigabytes(after), gigabytes(before), f"; {chosen.note}" if chosen.note else ""),
    )


def _num_bytes(tensor: StoredTensor) -> int:
    dtype = torch_dtype(tensor.dtype)
    return math.prod(tensor.shape) * (1 if dtype is None else dtype.itemsize)
