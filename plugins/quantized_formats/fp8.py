"""The format "fp8" of DeepSeek V3 and Qwen3: floats of 8 bits, and a scale for each block of a weight.

    weight            float8_e4m3fn [out, in]
    weight_scale_inv  float32 [out / rows, in / columns], rounded up, for blocks of [rows, columns]

    weight[o, i] = code[o, i] * weight_scale_inv[o / rows, i / columns]

With weight_block_size null, a weight has one scale. Source: `weight_dequant` in the code that DeepSeek
published with V3. That code also rounds activations to FP8 in blocks. Like transformers without a GPU, llmfw
does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from llmfw.core import QuantizedFormat, StoredLayer, StoredTensor

from .blocks import expanded, num_blocks
from .examples import fp8_example
from .settings import Settings
from .stored import modules_with, require

SCALE = "weight_scale_inv"
SCALE_DTYPES = ("float32", "bfloat16", "float16", "float8_e8m0fnu")

KNOWN = (
    *("quant_method", "activation_scheme", "fmt", "weight_block_size", "scale_fmt", "expert_dtype"),
    *("dequantize", "modules_to_convert", "modules_to_not_convert", "ignored_layers"),
)
"""Settings that are read, or that say no more than the stored tensors do. DeepSeek V3.1 has scale_fmt."""


class FP8(QuantizedFormat):
    """Reads FP8 checkpoints with a scale for each block, or for each weight."""

    conformance: ClassVar = {"example": fp8_example}
    note = "the checkpoint is meant for activations rounded to FP8; they stay in the dtype that serves"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        read = Settings(settings)
        read.one_of("activation_scheme", ("dynamic",), default="dynamic")
        read.one_of("fmt", ("e4m3",), default="e4m3")
        read.one_of("scale_fmt", ("float", "ue8m0"), default="float")
        read.one_of("expert_dtype", ("fp8",), default="fp8")
        read.refuse_unknown(KNOWN)
        self._block = read.block("weight_block_size")

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        for name in modules_with(tensors, SCALE):
            out_features, in_features = require(
                tensors, f"{name}.weight", ("float8_e4m3fn",), (None, None)
            ).shape
            leaves = {leaf: f"{name}.{leaf}" for leaf in ("weight", SCALE)}
            layer = StoredLayer(name, out_features, in_features, leaves)
            if self._block is None:
                size = 1 if tensors[f"{name}.{SCALE}"].shape else 0
                require(tensors, f"{name}.{SCALE}", SCALE_DTYPES, (1,) * size)
            else:
                shape = num_blocks(out_features, in_features, self._block)
                require(tensors, f"{name}.{SCALE}", SCALE_DTYPES, shape)
            yield layer

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        scales = tensors[SCALE].float()
        if self._block is not None:
            scales = expanded(scales, self._block, layer.out_features, layer.in_features)
        return tensors["weight"].float() * scales
