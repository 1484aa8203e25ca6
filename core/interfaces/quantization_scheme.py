"""The interface of a quantization scheme, which stores the weights of linear layers in fewer bits.

When a model is loaded with `--quantization NAME`, llmfw offers each plain linear layer to the scheme, and puts
the module that the scheme returns in the layer's place. Importing this module does not import torch.

Each returned module is tried on random input before the server starts. A scheme that raises, or whose module
computes something else than the layer, ends the start with an error that names the plugin.
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
        is_head: whether the layer's outputs are the model's own: the logits of tokens, or those of labels. Errors
            of its weight change the logits directly.
    """

    name: str
    out_features: int
    in_features: int
    dtype: torch.dtype
    is_head: bool = False


class QuantizationScheme(ABC):
    """Quantizes the weights of linear layers. The engine builds one scheme when it starts.

    Attributes:
        tolerance: maximum distance of a module's outputs from the layer's, relative to the norm of the layer's
            outputs for random inputs; above 0. Rounding to the dtype comes on top.
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

        The bias, which the module keeps in the layer's dtype, is not counted. Must return the same for the same
        layer. `llmfw plan` asks this of a model without weights.
        """

    @abstractmethod
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        """Return a module that computes the linear layer with a quantized weight.

        Called once for each layer for which `num_bytes` returns a size. Called again if the model is loaded
        again, because a module pass has failed.

        The module gets inputs [..., in_features], with any number of rows, and returns [..., out_features] in the
        dtype and on the device of its inputs. A row's result must not depend on other rows. All that the module
        keeps in memory must be buffers (`register_buffer`), apart from the bias; parameters would be taken for
        weights of the model. Code of some architectures and module passes also read attributes of linear layers:
        `in_features`, `out_features`, and `weight`, which may be a property that dequantizes.

        Args:
            weight: [out_features, in_features], in the layer's dtype, on the device that computes. Must not be
                changed or kept.
            bias: [out_features], in the layer's dtype, or None. May be kept.
        """

    def embedding(self, head: nn.Module) -> nn.Module:
        """Return an embedding layer that reads its rows from the quantized weight of a head.

        Called only if a scheme overrides it, for a model whose embeddings and head share one weight. Otherwise,
        such a weight stays as it is.

        The embedding layer gets token ids [...], and returns rows of the weight [..., in_features] in the layer's
        dtype. It must share the buffers of the head, and have none of its own.

        Args:
            head: module that `quantize` returned for the head.
        """
        raise NotImplementedError


__all__ = ["LinearLayer", "QuantizationScheme"]
