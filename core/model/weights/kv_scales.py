"""Reads the scales for stored keys and values that a checkpoint may contain: one for keys and one for values
per layer.

The names depend on the tool that calibrated the scales: `self_attn.k_scale` (compressed-tensors),
`self_attn.attn.k_scale` (vLLM), `self_attn.k_proj.k_scale` (ModelOpt), `self_attn.qkv_proj.k_scale`, or the
older `self_attn.kv_scale` for both.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence

import torch

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.kv_dtype import dtype_name, is_fp8
from llmfw.core.interfaces.layers import LayerSpec

from .weight_source import WeightSource

logger = logging.getLogger(__name__)

NAME = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.(?:.*\.)?(k|v|kv)_scale$")

Scales = dict[int, tuple[float, float]]


def choose_scales(source: WeightSource | None, layers: Sequence[LayerSpec], stored_as: torch.dtype) -> Scales:
    """Return the scales for fp8 keys and values by layer; {} for other dtypes.

    Logs whether the checkpoint has scales.

    Args:
        source: weights of the model; None: they are random.
        layers: attention layers of the model.
        stored_as: dtype of stored keys and values.

    Raises:
        ModelError: a scale in the checkpoint is not a single positive number.
    """
    if not is_fp8(stored_as):
        return {}
    found = {} if source is None else read_scales(source.matching(NAME))
    missing = [layer.model_index for layer in layers if layer.model_index not in found]
    name = dtype_name(stored_as)
    if not found:
        logger.warning(
            "Keys and values are kept in %s with a scale of 1, as the checkpoint has no scales for them: replies to long "
            "contexts may be worse.",
            name,
        )
    elif missing:
        logger.warning(
            "Keys and values are kept in %s; the checkpoint has no scales for layers %s: theirs is 1.",
            *(name, ", ".join(map(str, missing))),
        )
    else:
        logger.info("Keys and values are kept in %s, with the checkpoint's scales.", name)
    return {layer.index: found[layer.model_index] for layer in layers if layer.model_index in found}


def read_scales(tensors: Iterable[tuple[str, torch.Tensor]]) -> Scales:
    """Return the scales of keys and of values by layer.

    Args:
        tensors: stored tensors with their names; tensors with other names are ignored.

    Raises:
        ModelError: a scale is not a single positive number.
    """
    found: dict[int, dict[str, float]] = {}
    for name, tensor in tensors:
        if match := NAME.search(name):
            scale = _checked(name, tensor)
            for which in match[2]:
                found.setdefault(int(match[1]), {})[which] = scale
    return {index: (each.get("k", 1.0), each.get("v", 1.0)) for index, each in found.items()}


def _checked(name: str, tensor: torch.Tensor) -> float:
    if tensor.numel() != 1:
        raise ModelError(
            f"{name} of the checkpoint has the shape {list(tensor.shape)}; a layer's keys, or values, have one scale with "
            "--kv-cache-dtype fp8_e4m3"
        )
    scale = float(tensor)
    if not (math.isfinite(scale) and scale > 0):
        raise ModelError(f"{name} of the checkpoint is {scale}; a scale is a positive number")
    return scale
