"""Schemes for `--quantization`: bits per weight, and size in bytes including scales. Imports no torch.

Each row of a weight (the inputs of one output feature) is divided into groups of `GROUP` weights. A group has
one scale in bfloat16, and one code per weight; `codes` defines the codes. To add a scheme, add it to
`SCHEMES`, define its codes, and, for speed, implement its matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.base.errors import ConfigError

GROUP = 32
"""Number of weights, along the inputs, that share a scale."""
SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Scheme:
    """Storage format of a weight.

    Attributes:
        name: name for `--quantization`.
        bits: number of bits per code: 4 or 8.
    """

    name: str
    bits: int

    def num_bytes(self, out_features: int, in_features: int) -> int:
        """Return the size of a weight [out_features, in_features] in bytes, including scales."""
        return out_features * num_groups(in_features) * (GROUP * self.bits // 8 + SCALE_BYTES)


INT8, INT4 = Scheme("int8", 8), Scheme("int4", 4)
SCHEMES = {scheme.name: scheme for scheme in (INT8, INT4)}
HEAD = INT8
"""Scheme of the head, and of embeddings tied to it, whatever the scheme of the layers. Errors in the head's
weight directly change the logits."""


def find_scheme(name: str) -> Scheme:
    """Return a scheme by its name.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in SCHEMES:
        raise ConfigError(f"--quantization is {name!r}; it must be one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def num_groups(in_features: int) -> int:
    """Return the number of groups for `in_features` inputs; the last group may be padded."""
    return -(-in_features // GROUP)
