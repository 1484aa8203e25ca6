"""A made-up quantized format: codes of a byte, and a scale for each output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from llmfw.core import ModelError, QuantizedFormat, StoredLayer, StoredTensor
from llmfw.core.testing import QuantizedExample


def example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a random layer in this format."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-128, 128, (out_features, in_features), generator=generator).to(torch.int8)
    scales = torch.rand(out_features, generator=generator)
    settings = {"quant_method": "row-codes", "bits": 8, "tool": "tests"}
    return QuantizedExample(settings, {"codes": codes, "scales": scales}, codes.float() * scales[:, None])


class RowCodes(QuantizedFormat):
    """weight[o, i] = codes[o, i] * scales[o]"""

    conformance: ClassVar = {"example": example}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        if settings.get("bits") != 8:
            raise ModelError(f"quantization_config.bits is {settings.get('bits')!r}; it must be 8")

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        for name, codes in tensors.items():
            if name.endswith(".codes"):
                yield self.layer(name.removesuffix(".codes"), codes, tensors)

    def layer(self, name: str, codes: StoredTensor, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        """Return a layer whose tensors have been checked."""
        scales = tensors.get(f"{name}.scales")
        if scales is None or scales.shape != codes.shape[:1] or len(codes.shape) != 2:
            raise ModelError(f"{name} has no scale for each output; quantize the model again")
        if codes.dtype not in ("I8", "int8") or scales.dtype not in ("F32", "float32"):
            raise ModelError(f"{name} is stored in other dtypes; quantize the model again")
        return StoredLayer(name, *codes.shape, {leaf: f"{name}.{leaf}" for leaf in ("codes", "scales")})

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return tensors["codes"].float() * tensors["scales"][:, None]
