"""A changed checkpoint is refused in one line, or answers as before: about a hundred changes of five families.

Not among them are numbers of the config that leave every shape as it is (docs/operations.md lists them): nothing can
tell a wrong `rope_theta` from a right one.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.plugin.registry import Registry

from ...length import also
from ..engine.generation.tiny_models import SERVABLE, save_random_model

DEEPSEEK = SERVABLE["deepseek v3 (value heads of another size)"]
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": SERVABLE["llama"],
    "llama, tied": ("LlamaConfig", {"tie_word_embeddings": True, "head_dim": None, "attention_bias": True}),
    "qwen3-moe": SERVABLE["qwen3-moe"],
    "gemma 2": SERVABLE["gemma 2 (soft cap)"],
    "gpt-oss": SERVABLE["gpt-oss (sinks)"],
    "deepseek v3": (DEEPSEEK[0], DEEPSEEK[1] | {"first_k_dense_replace": 1}),
}
NUMBERS = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "vocab_size", "num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts"),
    *("moe_intermediate_size", "kv_lora_rank", "q_lora_rank", "v_head_dim", "qk_rope_head_dim"),
    *("qk_nope_head_dim", "first_k_dense_replace"),
)
"""Numbers that decide which tensors there are, and their shapes."""
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias")

Tensors = dict[str, torch.Tensor]


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    return {name.replace(old, new): tensor for name, tensor in tensors.items()}


def with_copies(tensors: Tensors, old: str, new: str) -> Tensors:
    return tensors | {
        name.replace(old, new): tensor.clone() for name, tensor in tensors.items() if old in name
    }


def with_one(change: Callable[[torch.Tensor], torch.Tensor], name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: change(tensors[name]).contiguous()}


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {other: tensor for other, tensor in tensors.items() if other != name}


def changes_of_tensors(tensors: Tensors) -> dict[str, Callable[[Tensors], Tensors]]:
    """Return what is done to the tensors, by name."""
    kinds = {re.sub(r"\d+", "N", name): name for name in tensors}
    changes = {f"without {name}": without(name) for name in kinds.values()}
    projection = next(name for name in tensors if "k_proj.weight" in name or "kv_b_proj.weight" in name)
    norm = next(name for name in tensors if "norm" in name)
    return changes | {
        "no tensor at all": lambda all_of_them: {"other": torch.zeros(1)},
        "attention renamed": lambda t: renamed(t, ".self_attn.", ".attention."),
        "one tensor renamed": lambda t: renamed(t, projection, f"{projection}s"),
        "a layer renumbered": lambda t: renamed(t, ".layers.2.", ".layers.5."),
        "without the base model's prefix": lambda t: renamed(t, "model.", ""),
        "another prefix": lambda t: renamed(t, "model.", "decoder."),
        "a surplus tensor": lambda t: t | {"model.layers.0.self_attn.extra.weight": torch.ones(3)},
        "a surplus layer": lambda t: with_copies(t, ".layers.2.", ".layers.3."),
        "an expert renumbered": lambda t: renamed(t, ".experts.1.", ".experts.9."),
        "a surplus expert": lambda t: with_copies(t, ".experts.1.", ".experts.9."),
        "two of one weight": lambda t: t | {norm.removeprefix("model."): t[norm] + 1},
        "a head for more tokens": lambda t: t | {"mtp.layers.0.weight": torch.ones(3)},
        "old rotary buffers": lambda t: t | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)},
        "a row less": with_one(lambda weight: weight[1:], projection),
        "transposed": with_one(lambda weight: weight.T[:, :-1], projection),
        "flat": with_one(lambda weight: weight.flatten(), projection),
        "a norm's number less": with_one(lambda weight: weight[1:], norm),
        "integers": with_one(lambda weight: weight.mul(100).to(torch.int8), projection),
    }


def changes_of_config(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return wrong configs."""
    changes: list[dict[str, Any]] = []
    for name in NUMBERS:
        number = config.get(name)
        if isinstance(number, int):
            changes += [{name: number - 1}, {name: 2 * number}]
    changes += [{name: not config[name]} for name in FLAGS if name in config]
    for change in changes:
        layers = change.get("num_hidden_layers", 0)
        for name in ("layer_types", "mlp_layer_types"):
            if layers and config.get(name):
                change[name] = (config[name] * 2)[:layers]
    return changes


def logits(folder: Path) -> torch.Tensor:
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32", module_passes="none")
    model = load_model(config, torch.device("cpu"), Registry())
    return packed_logits(model.module, 250)


def judge(folder: Path, expected: torch.Tensor) -> str:
    """Return "refused" or "harmless"; anything else is what is wrong."""
    try:
        found = logits(folder)
    except ModelError as error:
        text = str(error)
        return "refused" if "\n" not in text and len(text) < 2000 else f"is refused at length: {text}"
    except Exception as error:  # noqa: BLE001 - a traceback is what must not be
        return f"{type(error).__name__}: {error}"
    same = found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=1e-5)
    return "harmless" if same else "answers something else"


QUICK = ("llama", "gpt-oss", "deepseek v3")


@pytest.mark.long
@pytest.mark.parametrize("family", [*QUICK, *also(sorted(FAMILIES.keys() - set(QUICK)))])
def test_each_change_is_refused_or_harmless(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path / "original", *FAMILIES[family])
    expected = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    verdicts: dict[str, str] = {}
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    for title, change in changes_of_tensors(tensors).items():
        save_file(change(tensors), changed / "model.safetensors")
        verdicts[title] = judge(changed, expected)
    save_file(tensors, changed / "model.safetensors")
    for wrong in changes_of_config(config):
        (changed / "config.json").write_text(json.dumps(config | wrong))
        verdicts[str(wrong)] = judge(changed, expected)
    assert {title: v for title, v in verdicts.items() if v not in ("refused", "harmless")} == {}
    assert sum(v == "refused" for v in verdicts.values()) >= 20, verdicts
