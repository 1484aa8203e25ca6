"""Modules whose weight is quantized (codes and scales), in plain PyTorch: correct on every device, but slow.

The weight is dequantized at every call. A module pass may replace these modules with faster ones (native
code, a kernel) that use the same codes.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .code_format import GROUP, CodeFormat, num_groups
from .codes import decode, encode, pack_halves, unpack_halves

AT_ONCE = 1 << 22
"""Maximum number of weights that are dequantized at a time."""


class QuantizedWeight(nn.Module):
    """A quantized weight [out_features, in_features].

    Args:
        code_format: format of the codes.
        codes: one code per byte for 8 bits, [out_features, groups, GROUP]; two per byte for 4 bits,
            [out_features, groups, GROUP / 2].
        scales: scales in bfloat16, [out_features, groups].
        in_features: number of inputs. If it is not a multiple of GROUP, the last group is padded.
        dtype: dtype of the original weight.
    """

    codes: torch.Tensor
    scales: torch.Tensor

    def __init__(
        self,
        code_format: CodeFormat,
        codes: torch.Tensor,
        scales: torch.Tensor,
        in_features: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.code_format = code_format
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.out_features = len(codes)
        self.in_features = in_features
        self.dtype = dtype

    @classmethod
    def of(cls, weight: torch.Tensor, code_format: CodeFormat) -> QuantizedWeight:
        """Quantize a weight, [out_features, in_features]."""
        out_features, in_features = weight.shape
        groups = num_groups(in_features)
        rows = functional.pad(weight.detach(), (0, groups * GROUP - in_features))
        codes, scales = encode(rows.view(out_features, groups, GROUP), code_format)
        if code_format.bits == 4:
            codes = pack_halves(codes)
        return cls(code_format, codes, scales, in_features, weight.dtype)

    def single_codes(self) -> torch.Tensor:
        """Return the codes, unpacked to one code per byte: [out_features, groups, GROUP]."""
        return unpack_halves(self.codes) if self.code_format.bits == 4 else self.codes

    def rows(self, index: slice | torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return some rows of the dequantized weight, [..., in_features]."""
        codes = self.codes[index]
        if self.code_format.bits == 4:
            codes = unpack_halves(codes)
        numbers = decode(codes, self.scales[index], self.code_format)
        return numbers.flatten(-2)[..., : self.in_features].to(dtype)

    def extra_repr(self) -> str:
        """Return the text that torch shows with the class name."""
        return f"{self.code_format.name}, {self.out_features}, {self.in_features}"


class QuantizedLinear(nn.Module):
    """Linear layer with a quantized weight. Its input and output have the dtype of the original weight.

    Args:
        quantized: quantized weight.
        bias: bias, [out_features], or None.
    """

    def __init__(self, quantized: QuantizedWeight, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.quantized = quantized
        self.bias = bias
        self.in_features, self.out_features = quantized.in_features, quantized.out_features

    @property
    def weight(self) -> torch.Tensor:
        """The dequantized weight, [out_features, in_features]. Computed at each access, which is slow."""
        return self.quantized.rows(slice(None), self.quantized.dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features].

        On a CPU, the product is computed in float32, because bfloat16 would round the dequantized weight
        again.
        """
        dtype = torch.float32 if hidden.device.type == "cpu" else hidden.dtype
        rows, size = hidden.to(dtype), max(1, AT_ONCE // self.in_features)
        outputs = [
            functional.linear(rows, self.quantized.rows(slice(first, first + size), dtype))
            for first in range(0, self.out_features, size)
        ]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        if self.bias is not None:
            output = output + self.bias
        return output.to(hidden.dtype)

    def extra_repr(self) -> str:
        """Return the text that torch shows with the class name."""
        return f"bias={self.bias is not None}"


class QuantizedEmbedding(nn.Module):
    """Embedding layer that shares the quantized weight of the head.

    Args:
        quantized: weight of the head.
    """

    def __init__(self, quantized: QuantizedWeight) -> None:
        super().__init__()
        self.quantized = quantized
        self.num_embeddings, self.embedding_dim = quantized.out_features, quantized.in_features

    @property
    def weight(self) -> torch.Tensor:
        """The dequantized weight, [num_embeddings, embedding_dim]. Computed at each access, which is slow."""
        return self.quantized.rows(slice(None), self.quantized.dtype)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings, [..., embedding_dim], of token ids, [...]."""
        return self.quantized.rows(ids, self.quantized.dtype)


def num_bytes(model: nn.Module) -> int:
    """Return the size of a model's weights in bytes. Quantized weights count with their codes and scales."""
    quantized = {module for module in model.modules() if isinstance(module, QuantizedWeight)}
    codes = sum(buffer.nbytes for module in quantized for buffer in module.buffers())
    return codes + sum(parameter.nbytes for parameter in model.parameters())
