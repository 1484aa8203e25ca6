"""The quantization schemes `int8` and `int4`.

Both store the output head, and embeddings tied to the head, in 8 bits.

The modules come from `llmfw.core.model.quantization`, in plain PyTorch. On a CPU, the module pass
`cpu-native` replaces them with native code.
"""

from __future__ import annotations

import torch
from torch import nn

from llmfw.core import LinearLayer, QuantizationScheme
from llmfw.core.model.quantization.code_format import INT4, INT8, CodeFormat
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear, QuantizedWeight


class Int8(QuantizationScheme):
    """Stores a weight as whole numbers from -127 to 127, with a scale for each group of 32 weights."""

    tolerance = (
        0.1  # 0.005 for normally distributed weights; 0.022 if all but one weight of each group are small
    )
    code_format = INT8

    def num_bytes(self, layer: LinearLayer) -> int:
        return self._format_of(layer).num_bytes(layer.out_features, layer.in_features)

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        quantized = QuantizedWeight.of(weight, self._format_of(layer))
        return QuantizedLinear(quantized, None if bias is None else nn.Parameter(bias, requires_grad=False))

    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, QuantizedLinear)
        return QuantizedEmbedding(head.quantized)

    def _format_of(self, layer: LinearLayer) -> CodeFormat:
        return INT8 if layer.is_head else self.code_format


class Int4(Int8):
    """Stores a weight as one of 16 levels, with a scale for each group of 32 weights."""

    tolerance = (
        0.5  # 0.08 for normally distributed weights; 0.25 if all but one weight of each group are zero
    )
    code_format = INT4
