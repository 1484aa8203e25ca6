"""The format of GPTQ, as AutoGPTQ and GPTQModel write it.

    qweight  int32 [in * bits / 32, out]      codes of consecutive inputs in a word, the first in its lowest bits
    qzeros   int32 [groups, out * bits / 32]  zero points of consecutive outputs in a word
    scales   float16 [groups, out]
    g_idx    int32 [in]                       group of each input; may be missing without act-order

    weight[o, i] = scales[g_idx[i], o] * (code[i, o] - zero[g_idx[i], o])

The checkpoint format "gptq" stores zero - 1, "gptq_v2" stores zero. Source: `QuantLinear.pack` of AutoGPTQ
0.7 and GPTQModel 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from llmfw.core import ModelError, QuantizedFormat, StoredLayer, StoredTensor

from .bits import WORD, unpack_columns, unpack_rows
from .examples import gptq_example
from .groups import groups_of_inputs
from .settings import Settings, num_groups
from .stored import modules_with, require

SCALE_DTYPES = ("float16", "bfloat16", "float32")


class GPTQ(QuantizedFormat):
    """Reads GPTQ checkpoints of 4 or 8 bits: any group size, symmetric or not, with or without act-order."""

    conformance: ClassVar = {
        "example": gptq_example,
        "refused": [
            {"dynamic": {"+:.*": {"bits": 8}}},
            {"dynamic": ["-:.*"]},
            {"rotation": "hadamard"},
            {"is_marlin_format": True},
            {"pack_dtype": "int16"},
        ],
    }

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        read = Settings(settings)
        self._bits = read.one_of("bits", (4, 8))
        self._group_size = read.group_size()
        self._is_symmetric = read.one_of("sym", (True, False), default=True)
        self._has_act_order = read.one_of("desc_act", (True, False), default=False)
        form = "checkpoint_format" if settings.get("checkpoint_format") is not None else "format"
        self._stores_less_one = read.one_of(form, ("gptq", "gptq_v2"), default="gptq") == "gptq"
        read.one_of("pack_dtype", ("int32",), default="int32")
        read.refuse("is_marlin_format", "rotation", "adapter")
        _refuse_overrides(read, settings.get("dynamic"))

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        for name in modules_with(tensors, "qweight"):
            yield self._layer(name, tensors)

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        codes = unpack_rows(tensors["qweight"], self._bits)
        scales, zeros = tensors["scales"].float(), self._zeros(layer, tensors["qzeros"])
        order = None if self._has_act_order else "desc_act: false"
        name = layer.tensors.get("g_idx", "")
        group = groups_of_inputs(name, tensors.get("g_idx"), layer.in_features, len(scales), order)
        return ((codes.float() - zeros[group]) * scales[group]).T.contiguous()

    def _layer(self, name: str, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        per_word = WORD // self._bits
        rows, out_features = require(tensors, f"{name}.qweight", ("int32",), (None, None)).shape
        in_features = rows * per_word
        if out_features % per_word:
            raise ModelError(
                f"{name}.qweight has {out_features} outputs, no multiple of {per_word}; download the model again"
            )
        groups = num_groups(name, in_features, self._group_size)
        require(tensors, f"{name}.scales", SCALE_DTYPES, (groups, out_features))
        require(tensors, f"{name}.qzeros", ("int32",), (groups, out_features // per_word))
        leaves = ["qweight", "scales", "qzeros"]
        if f"{name}.g_idx" in tensors or self._has_act_order:
            require(tensors, f"{name}.g_idx", ("int32", "int64"), (in_features,))
            leaves.append("g_idx")
        return StoredLayer(name, out_features, in_features, {leaf: f"{name}.{leaf}" for leaf in leaves})

    def _zeros(self, layer: StoredLayer, packed: torch.Tensor) -> torch.Tensor:
        """Return the zero points, [groups, out_features] in float32."""
        stored = unpack_columns(packed, self._bits)
        largest = (1 << self._bits) - 1
        name = layer.tensors["qzeros"]
        if self._stores_less_one and bool((stored == largest).any()):
            raise ModelError(
                f"{name} has the zero point {largest} + 1, which {self._bits} bits do not hold; convert the checkpoint to "
                "the checkpoint_format gptq_v2, or take another one"
            )
        zeros = stored.float() + int(self._stores_less_one)
        if self._is_symmetric and bool((zeros != (largest + 1) // 2).any()):
            raise ModelError(
                f"{name} has other zero points than {(largest + 1) // 2}, and config.json says sym: true; correct it, or "
                "download the model again"
            )
        return zeros


def _refuse_overrides(read: Settings, rules: Any) -> None:
    """Refuse settings of single modules, except for rules that leave modules unquantized ("-:")."""
    if rules and not (isinstance(rules, Mapping) and all(str(rule).startswith("-:") for rule in rules)):
        raise read.refusal("dynamic", "llmfw reads one setting for all modules")
