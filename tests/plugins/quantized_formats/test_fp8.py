"""FP8 checkpoints are served as their weights, dequantized in float64, are."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .folders import Written, change, configure, logits, quantized_pair, refusal

SETTINGS: dict[str, Any] = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [48, 40],
}
QUERY = "model.layers.0.self_attn.q_proj"
SCALE = f"{QUERY}.weight_scale_inv"


def write(
    generator: np.random.Generator, out_features: int, in_features: int, block: list[int] | None
) -> Written:
    """Return a random layer as DeepSeek stores it, and its weight. Blocks at the edges are cut off."""
    codes = torch.from_numpy(generator.normal(0, 1, (out_features, in_features))).to(torch.float8_e4m3fn)
    rows, columns = block or (out_features, in_features)
    of_row, of_column = np.arange(out_features) // rows, np.arange(in_features) // columns
    scales = generator.uniform(0.05, 0.2, (of_row[-1] + 1, of_column[-1] + 1)).astype(np.float32)
    weight = codes.double().numpy() * scales.astype(np.float64)[of_row][:, of_column]
    stored = torch.from_numpy(scales)
    return {"weight": codes, "weight_scale_inv": stored if block else stored.reshape(1)}, weight


def make(folder: Path, block: list[int] | None, **options: Any) -> tuple[Path, Path]:
    settings = SETTINGS | {"weight_block_size": block}
    return quantized_pair(folder, settings, lambda *sizes: write(*sizes, block), **options)


@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe", "deepseek v3 (value heads of another size)"])
@pytest.mark.parametrize(
    ("block", "dtype"), [([48, 40], "bfloat16"), ([16, 32], "float32"), (None, "float32")]
)
def test_logits_equal_those_of_dequantized_weights(
    family: str, block: list[int] | None, dtype: str, tmp_path: Path
) -> None:
    quantized, plain = make(tmp_path, block, family=family)
    assert torch.equal(logits(quantized, dtype=dtype), logits(plain, dtype=dtype))


def test_the_log_says_what_is_not_rounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    quantized, _ = make(tmp_path, [48, 40])
    with caplog.at_level(logging.INFO):
        logits(quantized)
    (line,) = [text for text in caplog.messages if text.startswith("Quantized format")]
    assert line.startswith(
        "Quantized format: quantized_formats/fp8. 21 linear layers are dequantized to float32"
    )
    assert line.endswith("activations rounded to FP8; they stay in the dtype that serves")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"activation_scheme": "static"}, "quantization_config.activation_scheme is 'static'"),
        ({"weight_block_size": [48]}, "quantization_config.weight_block_size is [48] in config.json"),
        ({"weight_block_size": [16, 16]}, "_proj.weight_scale_inv is "),
        ({"fmt": "e5m2"}, "quantization_config.fmt is 'e5m2'"),
        ({"expert_dtype": "fp4"}, "quantization_config.expert_dtype is 'fp4'"),
        ({"scale_fmt": "log"}, "quantization_config.scale_fmt is 'log'"),
        ({"rotation": "hadamard"}, "quantization_config.rotation is 'hadamard'"),
    ],
)
def test_settings_that_are_not_computed_are_named(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    quantized, _ = make(tmp_path, [48, 40])
    configure(quantized, SETTINGS | settings)
    assert reason in refusal(quantized)


def test_settings_that_tensors_show_are_accepted(tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, [48, 40])
    others = {
        "scale_fmt": "ue8m0",
        "modules_to_not_convert": ["lm_head"],
        "rotation": None,
        "dequantize": False,
    }
    configure(quantized, SETTINGS | {"weight_block_size": [48, 40]} | others)
    assert torch.equal(logits(quantized), logits(plain))


def test_weights_without_scales_are_refused(tmp_path: Path) -> None:
    quantized, _ = make(tmp_path, [48, 40])
    change(quantized, lambda t: {name: x for name, x in t.items() if name != SCALE})
    assert f"{QUERY}.weight is stored in FP8, and has no scale" in refusal(quantized)
    change(
        quantized,
        lambda t: {n: x for n, x in t.items() if n != f"{QUERY}.weight"} | {SCALE: torch.ones(2, 2)},
    )
    assert f"{QUERY}.weight is missing" in refusal(quantized)
