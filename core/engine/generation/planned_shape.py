"""Measures the sizes of a model with states for `llmfw plan`, without its weights.

`llmfw plan` runs `main` in a process of its own, because it imports no torch.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import torch
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from llmfw.core.model.config.text_class import class_for_text
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.probe.meta_probe import MetaLayers, build_on_meta, measure_layers

from .capacity import shape_of


def main() -> None:
    """Print the sizes of the model in a folder (first argument) with weights in each dtype (other arguments).

    Prints a JSON object: `shapes` has a `ModelShape` for each dtype, with a weight size of 0. `attention` has
    the numbers of the attention layers. `takes_pieces` says whether snapshots are taken by default.
    """
    transformers_logging.set_verbosity_error()
    folder, *dtypes = sys.argv[1:]
    hf_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    auto_class = class_for_text(folder, hf_config)
    shapes: dict[str, Any] = {}
    for dtype in dtypes:
        module = build_on_meta(auto_class, hf_config, getattr(torch, dtype))
        layers = measure_layers(module, try_pieces=not shapes)
        if not shapes:
            first = layers
        shapes[dtype] = asdict(shape_of(_model(module, layers, hf_config, getattr(torch, dtype))))
    attention = [
        (spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.v_head_dim) for spec in first.attention
    ]
    print(json.dumps({"shapes": shapes, "attention": attention, "takes_pieces": first.takes_pieces}))


def _model(module: Any, layers: MetaLayers, hf_config: Any, dtype: torch.dtype) -> LoadedModel:
    """Return a model without weights, as far as its shape depends on it."""
    text_config = hf_config.get_text_config(decoder=True)
    return LoadedModel(
        module=module,
        layers=layers.attention,
        architecture=type(module).__name__,
        vocab_size=int(text_config.vocab_size),
        context_length=0,
        dtype=dtype,
        num_bytes=0,
        states=tuple(layers.states),
    )
