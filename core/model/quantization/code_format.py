"""Formats of quantized weights: bits per weight, and size in bytes including scales. Imports no torch.

Each row of a weight (the inputs of one output feature) is divided into groups of `GROUP` weights. A group has
one scale in bfloat16, and one code per weight; `codes` defines the codes.

The bundled schemes `int8` and `int4` store weights in these formats. The formats are part of core, and not of
the schemes' plugin, because fast kernels of other plugins read them, too.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = 32
"""Number of weights, along the inputs, that share a scale."""
SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class CodeFormat:
    """Storage format of a weight.

    Attributes:
        name: name for messages.
        bits: number of bits per code: 4 or 8.
    """

    name: str
    bits: int

    def num_bytes(self, out_features: int, in_features: int) -> int:
        """Return the size of a weight [out_features, in_features] in bytes, including scales."""
        return out_features * num_groups(in_features) * (GROUP * self.bits // 8 + SCALE_BYTES)


INT8, INT4 = CodeFormat("int8", 8), CodeFormat("int4", 4)
FORMATS = {each.name: each for each in (INT8, INT4)}


def num_groups(in_features: int) -> int:
    """Return the number of groups for `in_features` inputs; the last group may be padded."""
    return -(-in_features // GROUP)
