"""The interface of a quantized format, which reads linear layers whose weights a checkpoint stores in fewer bits.

    config.json   quantization_config: {"quant_method": NAME, ...}   `__init__`
    weights       a few tensors for each linear layer                `layers`, `weight`, `module`

A checkpoint names the format that it was quantized with. llmfw asks the component of that name which tensors
belong to which linear layer. The component computes weights from the tensors, and llmfw loads the weights
into transformers' model as if the checkpoint were not quantized. So the format needs no code for
architectures, merged projections, tied heads or experts, and llmfw refuses missing, surplus and mismatched
tensors as it does for any checkpoint.

A fault of a format ends the start with one line that names the plugin. Importing this module does not import
torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .weight_loader import StoredTensor

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A linear layer of a quantized checkpoint.

    Attributes:
        name: name of the layer in the checkpoint, such as "model.layers.0.mlp.down_proj". Its weight is
            "model.layers.0.mlp.down_proj.weight" in a checkpoint that is not quantized.
        out_features, in_features: number of outputs and inputs; the weight is [out_features, in_features].
        tensors: the stored tensors that the weight is computed from: key for `weight` → name in the
            checkpoint.
        has_module: whether `module` replaces the layer in the model.
    """

    name: str
    out_features: int
    in_features: int
    tensors: Mapping[str, str] = field(hash=False)
    has_module: bool = False


class QuantizedFormat(ABC):
    """Reads checkpoints of one quantization method. Registered under the `quant_method` of `config.json`.

    llmfw builds an object each time it lists or reads the weights of a model. A method that finds the config
    or the tensors damaged, incomplete, contradictory, or of a kind that it does not compute, raises
    ModelError with one line that names the tensor or the setting and says what to do. Anything else that a
    method raises is the format's own fault.

    Args:
        settings: the `quantization_config` of `config.json`.

    Attributes:
        settings: the constructor's argument.
        note: clause for the log about a difference between this model and the model that the checkpoint's
            authors intended, such as activations that are not rounded; "" if there is no difference.

    Raises:
        ModelError: the format does not support the settings.
    """

    note: str = ""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    @abstractmethod
    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterable[StoredLayer]:
        """Return the quantized linear layers of a checkpoint, without reading numbers.

        llmfw loads all other tensors unchanged, under their own names: norms, biases, embeddings, and linear
        layers that are not quantized.

        Args:
            tensors: formats of all stored tensors, by name.

        Raises:
            ModelError: a layer lacks a tensor, or a tensor has a shape or dtype that the settings contradict.
        """

    @abstractmethod
    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return a layer's dequantized weight as a new tensor: [out_features, in_features], float32, CPU.

        llmfw rounds the weight to the model's dtype. Called once for each layer that the model needs, in an
        order that the model decides, one call at a time.

        Args:
            layer: a layer that `layers` has returned.
            tensors: the tensors that the layer names, by the same keys, on the CPU. Must not be changed:
                files may be mapped into memory.

        Raises:
            ModelError: a tensor has impossible numbers, such as an index that is out of range.
        """

    def module(self, layer: StoredLayer, linear: nn.Linear, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        """Return a module that replaces a linear layer, for example a module that rounds its inputs.

        Called only for layers with `has_module`. The module gets inputs [..., in_features], with any number
        of rows, and returns [..., out_features] in the dtype and on the device of its inputs. A row's result
        must not depend on other rows. The only large tensors that it may keep are the tensors of `linear`.

        Args:
            layer: a layer that `layers` has returned.
            linear: the layer in the model, which has the weight that `weight` returned, rounded to the
                model's dtype, and the bias. On the CPU.
            tensors: as in `weight`.
        """
        raise NotImplementedError


__all__ = ["QuantizedFormat", "StoredLayer"]
