"""Random LoRA adapters for the tiny models, as PEFT saves them, and what a model says with one merged into its weights."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


def save_random_adapter(
    folder: Path,
    model: Path,
    *,
    rank: int = 8,
    seed: int = 0,
    targets: Sequence[str] = ALL,
    size: float = 0.3,
    **fields: Any,
) -> Path:
    """Write an adapter whose values change what the model says.

    Args:
        model: folder of the base model.
        targets: ends of the names of the adapted layers.
        size: size of the values; larger ones change more.
        fields: further fields of adapter_config.json; `rank_pattern` may have ends of names, without dots.
    """
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": list(targets),
        "bias": "none",
        "lora_dropout": 0.1,
        "inference_mode": True,
        "peft_version": "0.21.2",
    } | fields
    generator = torch.Generator().manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tensors = {}
    for name, module in base.named_modules():
        end = name.rpartition(".")[2]
        if end not in targets or not isinstance(module, torch.nn.Linear):
            continue
        own = config.get("rank_pattern", {}).get(end, rank)
        for letter, shape in (("A", (own, module.in_features)), ("B", (module.out_features, own))):
            values = torch.randn(shape, generator=generator) * (size / math.sqrt(own))
            tensors[f"base_model.model.{name}.lora_{letter}.weight"] = values
    write_adapter(folder, config, tensors)
    return folder


def write_adapter(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write an adapter's two files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


def merged(model: Path, adapter: Path | None, scale: float = 2.0) -> PreTrainedModel:
    """Return a base model in float64, with an adapter merged into its weights.

    Args:
        scale: scale of what the adapter adds.
    """
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).eval()
    if adapter is None:
        return base
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, down in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        up = tensors[name.replace(".lora_A.", ".lora_B.")]
        linear = base.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        linear.weight.data += scale * (up.double() @ down.double())
    return base


def continued(model: Any, prompts: Sequence[Sequence[int]], max_tokens: int, eos: int = 1) -> list[list[int]]:
    """Return what transformers' own `generate` continues each prompt with, one at a time, greedily."""
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        whole = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=0,
        )
        outputs.append(whole[0, len(prompt) :].tolist())
    return outputs
