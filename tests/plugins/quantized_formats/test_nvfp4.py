"""Checkpoints in NVFP4 are served as their weights, dequantized in float64, and round inputs as compressed-tensors does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from llmfw.plugins.quantized_formats.nvfp4 import FP4InputLinear, nearest_levels

from .folders import Written, change, configure, logits, quantized_pair, refusal

QUERY = "model.layers.0.self_attn.q_proj"
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FORM = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": 16,
    "symmetric": True,
    "dynamic": False,
    "scale_dtype": "torch.float8_e4m3fn",
}


def settings(inputs: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": FORM | changes, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def write(
    generator: np.random.Generator, out_features: int, in_features: int, global_scale: float = 64.0
) -> Written:
    """Return a random layer as compressed-tensors stores it, and its weight."""
    codes = generator.integers(0, 16, (out_features, in_features))
    drawn = generator.uniform(0.3, 3.0, (out_features, in_features // 16))
    scales = torch.from_numpy(drawn).to(torch.float8_e4m3fn)
    levels = LEVELS[codes & 7] * np.where(codes & 8, -1, 1)
    exact = levels * np.repeat(scales.double().numpy(), 16, axis=1) / global_scale
    tensors = {
        "weight_packed": torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)),
        "weight_scale": scales,
        "weight_global_scale": torch.tensor([global_scale]),
    }
    return tensors, exact


def write_with_inputs(generator: np.random.Generator, out_features: int, in_features: int) -> Written:
    tensors, exact = write(generator, out_features, in_features)
    return tensors | {"input_global_scale": torch.tensor([100.0])}, exact


def make(folder: Path, **options: Any) -> tuple[Path, Path]:
    return quantized_pair(folder, settings(), write, **options)


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_logits_equal_those_of_dequantized_weights(family: str, tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, family=family)
    assert torch.equal(logits(quantized), logits(plain))


def test_inputs_are_rounded_in_served_models(tmp_path: Path) -> None:
    inputs = FORM | {"dynamic": "local"}
    quantized, plain = quantized_pair(tmp_path, settings(inputs), write_with_inputs)
    found, exact = logits(quantized), logits(plain)
    difference = float((found - exact).abs().max() / exact.abs().max())
    assert 1e-3 < difference < 0.5


def test_inputs_become_levels_of_their_group() -> None:
    """Each group's scale is a float of 8 bits, divided by the global one; ties go to the even code."""
    rows = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    rows[1] = 0
    rows[2, :16] *= 1e4  # a scale above the largest one
    found = FP4InputLinear(nn.Linear(64, 3), torch.tensor([100.0])).rounded(rows).double().numpy()
    for row, expected in zip(found.reshape(-1, 16), rows.double().numpy().reshape(-1, 16), strict=True):
        scale = (
            float(torch.tensor(min(np.abs(expected).max() / 6 * 100, 448.0)).to(torch.float8_e4m3fn)) / 100
        )
        scale = scale or 0.125 / 100
        signed = np.concatenate([LEVELS, -LEVELS]) * scale
        nearest = np.abs(expected[:, None] - signed).min(axis=1)
        assert np.allclose(np.abs(expected - row), nearest, atol=1e-6 * scale, rtol=1e-4)


def test_ties_go_to_the_even_code() -> None:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 9.0])
    expected = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0])
    assert torch.equal(nearest_levels(torch.cat([ties, -ties])), torch.cat([expected, -expected]))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (settings(group_size=32), "weights.group_size is 32"),
        (settings(num_bits=8), "weights.num_bits is 8"),
        (settings(strategy="group"), "weights.strategy is 'group'"),
        (settings(symmetric=False), "weights.symmetric is False"),
        (settings(scale_dtype="torch.uint8"), "weights.scale_dtype is 'torch.uint8'"),
        (settings(FORM | {"dynamic": True}), "input_activations.dynamic is True"),
        (settings(FORM | {"dynamic": "local"}), ".input_global_scale is missing"),
    ],
)
def test_settings_that_are_not_computed_are_named(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    quantized, _ = make(tmp_path)
    configure(quantized, changed)
    assert reason in refusal(quantized)


@pytest.mark.parametrize(
    ("leaf", "new", "reason"),
    [
        ("weight_scale", None, "weight_scale is missing"),
        ("weight_scale", torch.ones(64, 3).to(torch.float8_e4m3fn), "weight_scale is [64, 3]"),
        ("weight_scale", torch.ones(64, 4), "weight_scale is stored as float32"),
        ("weight_global_scale", None, "weight_global_scale is missing"),
        ("weight_global_scale", torch.tensor([0.0]), "weight_global_scale is 0.0; it must be above 0"),
        ("weight_global_scale", torch.tensor([torch.nan]), "weight_global_scale is nan"),
        ("weight_packed", torch.ones(64, 24, dtype=torch.uint8), "weight_scale is [64, 4]"),
        ("weight_packed", torch.ones(64, 28, dtype=torch.uint8), "has 56 inputs, which groups of 16"),
        ("weight_packed", torch.ones(64, 32, dtype=torch.int32), "weight_packed is stored as int32"),
    ],
)
def test_damaged_tensors_are_named(leaf: str, new: Any, reason: str, tmp_path: Path) -> None:
    quantized, _ = make(tmp_path)
    name = f"{QUERY}.{leaf}"
    change(
        quantized,
        lambda t: {n: x for n, x in t.items() if n != name} | ({} if new is None else {name: new}),
    )
    assert f"{QUERY}" in refusal(quantized)
    assert reason in refusal(quantized)
