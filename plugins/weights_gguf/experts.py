"""Reads mixtures of experts.

llama.cpp stores one matrix of all experts of a layer in one tensor. Checkpoints have one tensor per expert.

    blk.0.ffn_gate_exps.weight  [experts, width, hidden]
    blk.0.ffn_up_exps.weight    [experts, width, hidden]
    blk.0.ffn_down_exps.weight  [experts, hidden, width]

An expert's matrix is a range of the file, so experts are read one by one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmfw.core import ModelError

from .header import Header, TensorEntry

OF_ALL_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)_exps\.weight")
NAMES = {
    "mixtral": (
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}.weight",
        {"gate": "w1", "up": "w3", "down": "w2"},
    ),
    "qwen3_moe": (
        "model.layers.{layer}.mlp.experts.{expert}.{matrix}.weight",
        {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
    ),
}
"""Model type → name of an expert's weight in checkpoints, and the names of the three matrices there."""
MIXTURES = {"llama": "mixtral", "qwen3moe": "qwen3_moe"}
"""Architecture of a file with experts → model type of transformers."""


def num_experts(architecture: str, header: Header) -> int:
    """Return the number of experts per layer; 0 if the model is not a mixture; -1 for an invalid number."""
    found = header.metadata.get(f"{architecture}.expert_count", 0)
    return found if type(found) is int else -1


def expert_config(file: Path, architecture: str, header: Header) -> dict[str, Any]:
    """Return the fields of config.json about the experts of a mixture.

    Raises:
        ModelError: the file lacks one of the numbers, or they contradict each other.
    """
    count = num_experts(architecture, header)
    used = _number(file, architecture, header, "expert_used_count")
    if used > count:
        raise ModelError(
            f"{file} has {used} as expert_used_count and {count} experts; take another file of the model"
        )
    if architecture == "llama":
        return {"model_type": "mixtral", "num_local_experts": count, "num_experts_per_tok": used}
    return {
        "num_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": _number(file, architecture, header, "expert_feed_forward_length"),
        "norm_topk_prob": True,  # llama.cpp does this for every model of this architecture
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def expert_tensors(file: Path, entry: TensorEntry, model_type: str, count: int) -> dict[str, TensorEntry]:
    """Return the matrices of a layer's experts by their names in checkpoints; {} for other tensors.

    Args:
        count: number of experts.

    Raises:
        ModelError: the tensor has another number of experts, or the model has no experts.
    """
    found = OF_ALL_EXPERTS.fullmatch(entry.name)
    if found is None:
        return {}
    if model_type not in NAMES or len(entry.shape) != 3 or entry.shape[0] != count:
        raise ModelError(
            f"{file} has {entry.name} of {list(entry.shape)}, and {count} experts in its metadata; take another file of the model"
        )
    name, matrices = NAMES[model_type]
    size = entry.num_bytes // count
    return {
        name.format(layer=found[1], expert=expert, matrix=matrices[found[2]]): replace(
            entry, shape=entry.shape[1:], offset=entry.offset + expert * size, num_bytes=size
        )
        for expert in range(count)
    }


def _number(file: Path, architecture: str, header: Header, name: str) -> int:
    found = header.metadata.get(f"{architecture}.{name}")
    if type(found) is not int or found < 1:
        raise ModelError(
            f"{file} has {found!r:.40} as {name}; a mixture of experts needs a whole number above 0: take another file of the model"
        )
    return found
