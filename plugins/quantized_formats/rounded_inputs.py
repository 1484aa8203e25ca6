"""Linear layers whose inputs are rounded to 8 bits, as compressed-tensors defines it.

    scale = max |x| of a row / half range, or a stored number     half range: 448 for floats, 127.5 for integers
    x'    = round(x / scale) * scale
    y     = x' @ weight.T + bias

Source: `calculate_qparams` and `_quantize_dequantize` of compressed-tensors 0.20. That code
rounds the scales of rows to the model's dtype; llmfw keeps the scales in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

FLOAT = torch.float8_e4m3fn
LARGEST_FLOAT = 448.0
HALF_RANGE = {True: LARGEST_FLOAT, False: 127.5}
"""Whether codes are floats → number to which the largest input of a row is scaled."""


@dataclass(frozen=True, slots=True)
class Activations:
    """The rounding of layers' inputs.

    Attributes:
        is_float: whether inputs are rounded to floats of 8 bits, in place of integers of 8 bits.
        is_dynamic: whether each row gets its own scale, computed from the row; otherwise, the layer has a
            stored scale.
    """

    is_float: bool
    is_dynamic: bool


class RoundedInputLinear(nn.Linear):
    """A linear layer that rounds its inputs.

    Args:
        linear: plain linear layer, whose weight and bias are used.
        activations: rounding of the inputs.
        scale: stored scale, [1]; None: each row has its own scale.
    """

    scale: torch.Tensor | None

    def __init__(self, linear: nn.Linear, activations: Activations, scale: torch.Tensor | None) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, "meta")
        self.weight, self.bias = linear.weight, linear.bias
        self._is_float = activations.is_float
        self.register_buffer("scale", None if scale is None else scale.float(), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        return functional.linear(self.rounded(hidden), self.weight, self.bias)

    def rounded(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return rounded inputs, [..., in_features], in their dtype."""
        numbers = hidden.float()
        scale = self.scale
        if scale is None:
            scale = numbers.abs().amax(-1, keepdim=True) / HALF_RANGE[self._is_float]
            scale = torch.where(scale == 0, 1.0, scale)
        codes = numbers / scale
        if self._is_float:
            codes = codes.clamp(-LARGEST_FLOAT, LARGEST_FLOAT).to(FLOAT).float()
        else:
            codes = codes.clamp(-128, 127).round()
        return (codes * scale).to(hidden.dtype)
