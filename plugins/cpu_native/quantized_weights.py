"""Quantized weights of linear layers in the native code's layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from llmfw.core.model.quantization.code_format import GROUP, SCALE_BYTES, num_groups
from llmfw.core.model.quantization.codes import pack_halves
from llmfw.core.model.quantization.modules import QuantizedLinear, QuantizedWeight

from .library import load_quantized
from .weights import Arena, Packed, PackedWeights

KINDS = {8: 1, 4: 2}
"""Bits per code → `Kind` in csrc/products.h."""


class PackedCodes(Packed):
    """Packed quantized weights: codes and scales.

    Args:
        weights: weights of one format and input width; they are copied.
        biases: bias of each layer; None: no layer has one.
        arena: memory for the copies.
    """

    def __init__(
        self, weights: Sequence[QuantizedWeight], biases: Sequence[torch.Tensor] | None, arena: Arena
    ) -> None:
        first = weights[0]
        self.code_format = first.code_format
        self._groups = num_groups(first.in_features)
        shapes = [(weight.out_features, weight.in_features) for weight in weights]
        row_bytes = self._groups * (GROUP * self.code_format.bits // 8 + SCALE_BYTES)
        super().__init__(first.dtype, shapes, biases, arena, row_bytes, KINDS[self.code_format.bits])
        for i, weight in enumerate(weights):
            codes, scales = weight.single_codes().contiguous(), weight.scales.contiguous()
            load_quantized(self.dtype).llmfw_pack_codes(
                self._kind, codes.data_ptr(), scales.data_ptr(), *scales.shape, self._address(i)
            )

    def weight(self, index: int) -> torch.Tensor:
        """Return one layer's weight, dequantized: [out_features, in_features]."""
        codes = torch.empty(self.sizes[index], self._groups, GROUP, dtype=torch.uint8, device="cpu")
        scales = torch.empty(self.sizes[index], self._groups, dtype=torch.bfloat16, device="cpu")
        load_quantized(self.dtype).llmfw_unpack_codes(
            self._kind, self._address(index), *scales.shape, codes.data_ptr(), scales.data_ptr()
        )
        codes = pack_halves(codes) if self.code_format.bits == 4 else codes.view(torch.int8)
        found = QuantizedWeight(self.code_format, codes, scales, self.in_features, self.dtype)
        return found.rows(slice(None), self.dtype)


def pack_linears(linears: Sequence[nn.Module], biases: Sequence[torch.Tensor] | None, arena: Arena) -> Packed:
    """Pack the weights of linear layers that share one input and are either all quantized or all not."""
    quantized = [linear.quantized for linear in linears if isinstance(linear, QuantizedLinear)]
    if quantized:
        return PackedCodes(quantized, biases, arena)
    weights = [linear.weight for linear in linears]
    assert all(isinstance(weight, torch.Tensor) for weight in weights)
    return PackedWeights(weights, biases, arena)  # type: ignore[arg-type]
