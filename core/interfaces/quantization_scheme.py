"""The interface of a quantization scheme, which stores the weights of linear layers in fewer bits.

When a model is loaded with `--quantization NAME`, llmfw offers each plain linear layer to the scheme, and
replaces the layer with the module that the scheme returns. Importing this module does not import torch.

llmfw tests each returned module on random input before the server starts. If a scheme raises, or its module's
results differ from the layer's, the start ends with an error that names the plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear layer of a model, known before its weight is read.

    Attributes:
        name: name in the model, such as "model.layers.0.mlp.down_proj".
        out_features, in_features: number of outputs and inputs; the weight is [out_features, in_features].
        dtype: dtype of the weight, the bias, the inputs and the outputs.
        is_head: whether the layer's outputs are the model's outputs: logits of tokens or of labels. Errors in
            the weight of such a layer change the logits directly.
    """

    name: str
    out_features: int
    in_features: int
    dtype: torch.dtype
    is_head: bool = False


class QuantizationScheme(ABC):
    """Quantizes the weights of linear layers. The engine builds one scheme when it starts.

    Attributes:
        tolerance: maximum distance of a module's outputs from the layer's, relative to the norm of the
            layer's outputs for random inputs; above 0. Rounding to the dtype may add to this distance.
    """

    tolerance: float = 0.5

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o quantization_scheme.key=value`. A scheme with options overrides
        this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def unsupported(self, device: str, dtype: torch.dtype) -> str | None:
        """Return why the scheme cannot quantize models of this dtype on this device; None if it can.

        The reason is a sentence for errors, such as "it needs an NVIDIA GPU".
        """
        return None

    @abstractmethod
    def num_bytes(self, layer: LinearLayer) -> int | None:
        """Return the size of a layer's quantized weight in bytes, with scales and all else that its module
        keeps in memory; None: the layer stays as it is.

        Does not count the bias, which the module keeps in the layer's dtype. Must return the same size for
        the same layer. `llmfw plan` calls this method for a model without weights.
        """

    @abstractmethod
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        """Return a module that computes the linear layer with a quantized weight.

        Called once for each layer for which `num_bytes` returns a size. Called again if the model is loaded
        again, because a module pass has failed.

        The module gets inputs [..., in_features], with any number of rows, and returns [..., out_features] in
        the dtype and on the device of its inputs. A row's result must not depend on other rows. Apart from
        the bias, the module must keep all its data in buffers (`register_buffer`), because llmfw would take
        parameters for weights of the model. Code of some architectures and module passes also read attributes
        of linear layers: `in_features`, `out_features`, and `weight`, which may be a property that
        dequantizes.

        Args:
            weight: [out_features, in_features], in the layer's dtype, on the device that computes. Must not
                be changed or kept.
            bias: [out_features], in the layer's dtype, or None. May be kept.
        """

    def embedding(self, head: nn.Module) -> nn.Module:
        """Return an embedding layer that reads its rows from the quantized weight of a head.

        Called only if a scheme overrides it, for a model whose embeddings and head share one weight.
        Otherwise, such a weight stays as it is.

        The embedding layer gets token ids [...], and returns rows of the weight [..., in_features] in the
        layer's dtype. It must share the buffers of the head, and have no other buffers.

        Args:
            head: module that `quantize` returned for the head.
        """
        raise NotImplementedError


__all__ = ["LinearLayer", "QuantizationScheme"]
