"""AWQ checkpoints are served as their weights, dequantized in float64, are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .folders import Written, change, configure, logits, pack_words, quantized_pair, refusal

SETTINGS: dict[str, Any] = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 32,
    "zero_point": True,
    "version": "gemm",
}
OUTPUTS_OF_WORD = [0, 2, 4, 6, 1, 3, 5, 7]
QUERY = "model.layers.0.self_attn.q_proj"


def write(generator: np.random.Generator, out_features: int, in_features: int, group_size: int) -> Written:
    """Return a random layer as AutoAWQ stores it, and its weight."""
    groups = 1 if group_size == -1 else in_features // group_size
    codes = generator.integers(0, 16, (in_features, out_features))
    zeros = generator.integers(0, 16, (groups, out_features))
    scales = generator.uniform(0.01, 0.05, zeros.shape).astype(np.float16)
    group = np.arange(in_features) // (in_features // groups)
    weight = (scales.astype(np.float64)[group] * (codes - zeros[group])).T.copy()

    def packed(numbers: np.ndarray[Any, Any]) -> torch.Tensor:
        words = numbers.reshape(len(numbers), -1, 8)[:, :, OUTPUTS_OF_WORD]
        return pack_words(words.reshape(numbers.shape), 4)

    return {"qweight": packed(codes), "qzeros": packed(zeros), "scales": torch.from_numpy(scales)}, weight


def make(folder: Path, group_size: int = 32, **options: Any) -> tuple[Path, Path]:
    settings = SETTINGS | {"group_size": group_size}
    return quantized_pair(folder, settings, lambda *sizes: write(*sizes, group_size), **options)


@pytest.mark.parametrize(
    ("family", "group_size", "dtype"),
    [
        ("llama", 32, "float32"),
        ("llama", -1, "bfloat16"),
        ("phi 3", 32, "float32"),
        ("mixtral", 16, "bfloat16"),
    ],
)
def test_logits_equal_those_of_dequantized_weights(
    family: str, group_size: int, dtype: str, tmp_path: Path
) -> None:
    quantized, plain = make(tmp_path, group_size, family=family)
    assert torch.equal(logits(quantized, dtype=dtype), logits(plain, dtype=dtype))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bits": 8}, "quantization_config.bits is 8 in config.json; llmfw reads 4"),
        ({"version": "gemv"}, "quantization_config.version is 'gemv'"),
        ({"zero_point": False}, "quantization_config.zero_point is False"),
        ({"group_size": 40}, "has 96 inputs, which groups of 40 do not divide"),
        ({"group_size": 16}, ".qzeros is [3, 8]"),
    ],
)
def test_settings_that_are_not_computed_are_named(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    quantized, _ = make(tmp_path)
    configure(quantized, SETTINGS | settings)
    assert reason in refusal(quantized)


@pytest.mark.parametrize("leaf", ["scales", "qzeros"])
def test_missing_tensors_are_named(leaf: str, tmp_path: Path) -> None:
    quantized, _ = make(tmp_path)
    change(quantized, lambda t: {name: x for name, x in t.items() if name != f"{QUERY}.{leaf}"})
    assert f"{QUERY}.{leaf} is missing; download the model again" in refusal(quantized)
