"""The quantized format of a checkpoint. Checks all that the component returns.

A format comes from a plugin. Each fault of the format becomes an error of one line that names the plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from llmfw.core.interfaces.quantized_format import QuantizedFormat, StoredLayer
from llmfw.core.interfaces.weight_loader import StoredTensor
from llmfw.core.plugin.one_line import one_line
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError

from ..quantization.layer_trial import check_like
from ..weights.isolated_loader import LoaderGuard, check_tensor


class ChosenFormat:
    """Wraps a quantized format. All methods raise the errors of `LoaderGuard.asking`.

    Args:
        entry: registry entry of the format.
        component: class of the format.
        settings: the `quantization_config` of the model's config.
        guard: runs the format's code.

    Attributes:
        entry: the argument.
        note: clause for the log; see `QuantizedFormat`.
    """

    def __init__(
        self,
        entry: Entry,
        component: type[QuantizedFormat],
        settings: Mapping[str, Any],
        guard: LoaderGuard,
    ) -> None:
        self.entry = entry
        self._guard = guard
        self._places: dict[int, tuple[StorageWeakRef, str]] = {}
        with guard.asking("__init__()"):
            self._format = component(settings)
            note: Any = self._format.note
            if not isinstance(note, str):
                raise WrongReturnError(f"its note is {note!r:.80}; it must be text")
        self.note = one_line(note)

    def layers(self, stored: Mapping[str, StoredTensor]) -> dict[str, StoredLayer]:
        """Return the quantized layers of a checkpoint: name of the weight, which is not stored → layer."""
        found: dict[str, StoredLayer] = {}
        owners: dict[str, str] = {}
        with self._guard.asking("layers()"):
            for layer in self._format.layers(dict(stored)):
                _check_layer(layer, stored)
                weight = f"{layer.name}.weight"
                if weight in found:
                    raise WrongReturnError(f"returned the layer {layer.name!r:.200} twice")
                for name in layer.tensors.values():
                    if owners.setdefault(name, layer.name) != layer.name:
                        raise WrongReturnError(
                            f"returned {name!r:.200} for two layers, {owners[name]!r:.200} and {layer.name!r:.200}"
                        )
                if weight in stored and weight not in layer.tensors.values():
                    raise WrongReturnError(
                        f"returned the layer {layer.name!r:.200}, which has a stored weight that it does not use"
                    )
                found[weight] = layer
        return found

    def weight(self, layer: StoredLayer, read: Callable[[str], torch.Tensor]) -> torch.Tensor:
        """Return the weight of a layer, [out_features, in_features] in float32.

        Args:
            read: function that returns a stored tensor by its name.
        """
        tensors = {key: read(name) for key, name in layer.tensors.items()}
        with self._guard.asking(f"weight() of layer {layer.name!r:.200}"), torch.no_grad():
            found: Any = self._format.weight(layer, tensors)
            check_tensor(found, weight_of(layer), "the weight is")
            self._check_new(layer, found)
            weight: torch.Tensor = found.detach()
        return weight

    def _check_new(self, layer: StoredLayer, weight: torch.Tensor) -> None:
        """Raise WrongReturnError if a weight shares memory with another layer's weight still in use."""
        place = weight.data_ptr()
        storage, owner = self._places.get(place, (None, ""))
        if storage is not None and not storage.expired() and owner != layer.name:
            raise WrongReturnError(
                f"it returned the memory of the weight of {owner!r:.200} again; it must return a new tensor for each layer"
            )
        self._places[place] = StorageWeakRef(weight.untyped_storage()), layer.name

    def module(self, layer: StoredLayer, linear: nn.Linear, read: Callable[[str], torch.Tensor]) -> nn.Module:
        """Return the module that replaces a linear layer.

        Args:
            linear: the layer in the model.
            read: function that returns a stored tensor by its name.
        """
        tensors = {key: read(name) for key, name in layer.tensors.items()}
        with self._guard.asking(f"module() of layer {layer.name!r:.200}"), torch.no_grad():
            module: Any = self._format.module(layer, linear, tensors)
            if not isinstance(module, nn.Module):
                raise WrongReturnError(f"it returned {module!r:.80} in place of a torch.nn.Module")
            rows = torch.ones(2, layer.in_features, dtype=linear.weight.dtype)
            check_like(module(rows), rows.new_empty(2, layer.out_features), "its module returned")
        found: nn.Module = module
        return found


def weight_of(layer: StoredLayer) -> StoredTensor:
    """Return the format of a layer's weight."""
    return StoredTensor("float32", (layer.out_features, layer.in_features))


def _check_layer(layer: object, stored: Mapping[str, StoredTensor]) -> None:
    """Raise WrongReturnError unless a value describes a layer by stored tensors."""
    if not isinstance(layer, StoredLayer):
        raise WrongReturnError(f"returned {layer!r:.80} in place of a StoredLayer")
    if type(layer.name) is not str or not layer.name:
        raise WrongReturnError(f"returned a layer with the name {layer.name!r:.80}; it must be text")
    sizes: Any = (layer.out_features, layer.in_features)
    if not all(type(size) is int and size > 0 for size in sizes):
        raise WrongReturnError(f"returned the layer {layer.name!r:.200} of the size {sizes!r:.80}")
    names: Any = layer.tensors
    if not isinstance(names, Mapping) or not names:
        raise WrongReturnError(f"returned the layer {layer.name!r:.200} without tensors")
    if others := [name for name in names.values() if name not in stored]:
        raise WrongReturnError(f"returned {others[0]!r:.200} for a layer, which is not stored")
