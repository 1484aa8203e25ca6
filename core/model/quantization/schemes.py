"""The schemes of `--quantization`: how many bits a weight has, and what it takes with its scale. Imports no torch.

A weight is cut along its inputs into groups of `GROUP`. Each group of an output feature has a scale in bfloat16 and a
code for each weight; what codes stand for is known in `codes`. A third scheme is a line in `SCHEMES`, its codes, and
where it is to be fast, its products.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.base.errors import ConfigError

GROUP = 32
"""Weights, along the inputs, that share a scale."""
SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a weight is stored.

    Attributes:
        name: as `--quantization` has it.
        bits: of a code; 4 or 8.
    """

    name: str
    bits: int

    def num_bytes(self, out_features: int, in_features: int) -> int:
        """Return what a weight [out_features, in_features] takes."""
        return out_features * num_groups(in_features) * (GROUP * self.bits // 8 + SCALE_BYTES)


INT8, INT4 = Scheme("int8", 8), Scheme("int4", 4)
SCHEMES = {scheme.name: scheme for scheme in (INT8, INT4)}
HEAD = INT8
"""Of the head, and of embeddings that are tied to it, whatever the layers have: errors there are the logits' own."""


def find_scheme(name: str) -> Scheme:
    """Return a scheme by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in SCHEMES:
        raise ConfigError(f"--quantization is {name!r}; it must be one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def num_groups(in_features: int) -> int:
    """Return how many groups so many inputs are; the last one may be filled up."""
    return -(-in_features // GROUP)
