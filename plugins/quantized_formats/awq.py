"""The format of AWQ, in the layout "gemm" of AutoAWQ.

    qweight  int32 [in, out / 8]      eight codes of consecutive outputs in a word
    qzeros   int32 [groups, out / 8]  zero points, packed in the same way
    scales   float16 [groups, out]

    weight[o, i] = scales[i / group_size, o] * (code[i, o] - zero[i / group_size, o])

From its lowest bits on, a word has the codes of the outputs 0, 2, 4, 6, 1, 3, 5 and 7. Source:
`WQLinear_GEMM.from_linear` of AutoAWQ 0.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from llmfw.core import QuantizedFormat, StoredLayer, StoredTensor

from .bits import WORD, unpack_columns
from .examples import awq_example
from .settings import Settings, num_groups
from .stored import modules_with, require

BITS = 4
PER_WORD = WORD // BITS
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output of each code in a word, from the lowest bits on."""


class AWQ(QuantizedFormat):
    """Reads AWQ checkpoints of 4 bits in the layout "gemm", of any group size."""

    conformance: ClassVar = {"example": awq_example}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        read = Settings(settings)
        read.one_of(read.first_of("bits", "w_bit"), (BITS,))
        self._group_size = read.group_size(read.first_of("group_size", "q_group_size"))
        read.one_of("zero_point", (True,), default=True)
        read.one_of(read.first_of("version", "format", "checkpoint_format"), ("gemm", "GEMM"), default="gemm")

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        for name in modules_with(tensors, "qweight"):
            in_features, words = require(tensors, f"{name}.qweight", ("int32",), (None, None)).shape
            groups = num_groups(name, in_features, self._group_size)
            require(tensors, f"{name}.qzeros", ("int32",), (groups, words))
            dtypes = ("float16", "bfloat16", "float32")
            require(tensors, f"{name}.scales", dtypes, (groups, words * PER_WORD))
            leaves = {leaf: f"{name}.{leaf}" for leaf in ("qweight", "qzeros", "scales")}
            yield StoredLayer(name, words * PER_WORD, in_features, leaves)

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        codes, zeros = (_in_order(unpack_columns(tensors[key], BITS)) for key in ("qweight", "qzeros"))
        shape = len(zeros), -1, layer.out_features
        numbers = (codes.float().view(shape) - zeros.float()[:, None]) * tensors["scales"].float()[:, None]
        return numbers.view(layer.in_features, -1).T.contiguous()


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Reorder codes, [rows, out], from the order in words to the order of the outputs."""
    words = codes.view(len(codes), -1, PER_WORD)
    ordered = torch.empty_like(words)
    ordered[:, :, list(ORDER)] = words
    return ordered.view(codes.shape)
