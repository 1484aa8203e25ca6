"""Quantized checkpoints of random models, each with a folder of the same weights in float32 for comparison.

Weights are dequantized here in float64, from the numbers before they are packed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.model.models import load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.plugin.registry import Entry, Registry

from ...core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

CPU = torch.device("cpu")
Tensors = dict[str, torch.Tensor]
Written = tuple[Tensors, np.ndarray[Any, Any]]
"""Tensors of a layer by their last name, and its weight in float64."""
CLASSES = {
    "gptq": "gptq:GPTQ",
    "awq": "awq:AWQ",
    "fp8": "fp8:FP8",
    "compressed-tensors": "compressed_tensors:CompressedTensors",
}


def registry() -> Registry:
    """Return a registry with the bundled formats, as an installed llmfw has them."""
    path = "llmfw.plugins.quantized_formats."
    return Registry(
        [
            Entry("quantized_format", name, path + found, "quantized_formats", "llmfw-engine", "1.0")
            for name, found in CLASSES.items()
        ]
    )


def quantized_pair(
    folder: Path,
    settings: Mapping[str, Any],
    write: Callable[[np.random.Generator, int, int], Written],
    *,
    family: str = "llama",
    head: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Path, Path]:
    """Write a quantized checkpoint, and one with the same weights in float32; return both folders.

    Args:
        settings: the `quantization_config`.
        write: function of a random generator and the numbers of outputs and inputs that quantizes a layer.
        family: key of `SERVABLE`.
        head: whether the head is quantized, too.
        changes: further settings of the model's config.
    """
    config_class, own = SERVABLE[family]
    plain = save_random_model(folder / "plain", config_class, {**own, **(changes or {})})
    quantized = save_random_model(folder / "quantized", config_class, {**own, **(changes or {})})
    generator = np.random.default_rng(5)
    weights, packed = {}, {}
    for name, weight in load_file(plain / "model.safetensors").items():
        module, _, leaf = name.rpartition(".")
        is_linear = "_proj" in module or ".w1" in module or ".w2" in module or ".w3" in module
        if leaf == "weight" and weight.dim() == 2 and (is_linear or (head and module == "lm_head")):
            tensors, exact = write(generator, *weight.shape)
            weights[name] = torch.from_numpy(exact).float()
            packed.update({f"{module}.{key}": tensor for key, tensor in tensors.items()})
        else:
            weights[name] = packed[name] = weight
    save_file(weights, plain / "model.safetensors")
    save_file({name: each.contiguous() for name, each in packed.items()}, quantized / "model.safetensors")
    configure(quantized, dict(settings))
    return quantized, plain


def configure(folder: Path, settings: Mapping[str, Any]) -> None:
    """Put a `quantization_config` into a folder's config."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": dict(settings)}))


def change(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Change the tensors of a folder."""
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    save_file({name: each.contiguous() for name, each in change(tensors).items()}, file)


def logits(folder: Path, **settings: Any) -> torch.Tensor:
    """Return the logits of a folder's model for a few fixed sequences."""
    settings = {"module_passes": "none", "dtype": "float32"} | settings
    config = EngineConfig(model=str(folder), device="cpu", **settings)
    return packed_logits(load_model(config, CPU, registry()).module, VOCAB_SIZE)


def refusal(folder: Path, **settings: Any) -> str:
    """Return why a folder is refused: an error of one line."""
    with pytest.raises(ConfigError) as caught:
        logits(folder, **settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


def pack_words(codes: np.ndarray[Any, Any], bits: int) -> torch.Tensor:
    """Pack codes [..., n] into int32 [..., n * bits / 32], the first code in the lowest bits."""
    per_word = 32 // bits
    words = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, per_word)
    factors = np.array([1 << (bits * i) for i in range(per_word)], dtype=np.uint64)
    return torch.from_numpy((words * factors).sum(-1).astype(np.uint32).view(np.int32))
