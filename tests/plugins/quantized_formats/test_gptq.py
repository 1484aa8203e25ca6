"""GPTQ checkpoints are served as their weights, dequantized in float64, are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ...length import also_each
from .folders import Tensors, Written, change, configure, logits, pack_words, quantized_pair, refusal

SETTINGS: dict[str, Any] = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 32,
    "sym": True,
    "desc_act": False,
}
QUERY = "model.layers.0.self_attn.q_proj"
SCHEMES = [
    (bits, group_size, sym, desc_act)
    for bits in (4, 8)
    for group_size in (-1, 32)
    for sym, desc_act in ((True, False), (False, False), (True, True), (False, True))
]
"""Bits, size of groups, and whether codes are symmetric and in another order."""
FAMILIES = ("qwen3", "phi 3", "mixtral", "qwen3-moe", "gemma 3")
SERVED = [(family, dtype) for dtype in ("float32", "bfloat16") for family in FAMILIES]


def write(
    generator: np.random.Generator,
    out_features: int,
    in_features: int,
    settings: dict[str, Any],
) -> Written:
    """Return a random layer as AutoGPTQ stores it, and its weight."""
    bits, size = settings["bits"], settings["group_size"]
    groups = 1 if size == -1 else in_features // size
    codes = generator.integers(0, 1 << bits, (in_features, out_features))
    middle = 1 << (bits - 1)
    zeros = np.full((groups, out_features), middle)
    if not settings["sym"]:
        zeros = generator.integers(1, 1 << bits, zeros.shape)
    scales = (generator.uniform(0.5, 1.5, zeros.shape) * 0.25 / middle).astype(np.float16)
    group = np.arange(in_features) // (in_features // groups)
    if settings["desc_act"]:
        group = generator.permutation(group)
    weight = (scales.astype(np.float64)[group] * (codes - zeros[group])).T.copy()
    less = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    tensors = {
        "qweight": pack_words(codes.T, bits).T,
        "qzeros": pack_words(zeros - less, bits),
        "scales": torch.from_numpy(scales),
        "g_idx": torch.from_numpy(group.astype(np.int32)),
    }
    return tensors, weight


def make(folder: Path, settings: dict[str, Any] | None = None, **options: Any) -> tuple[Path, Path]:
    given = SETTINGS | (settings or {})
    return quantized_pair(folder, given, lambda *sizes: write(*sizes, given), **options)


@pytest.mark.parametrize(
    ("bits", "group_size", "sym", "desc_act"), [*SCHEMES[::3], *also_each(*SCHEMES[1::3], *SCHEMES[2::3])]
)
def test_logits_equal_those_of_dequantized_weights(
    bits: int, group_size: int, sym: bool, desc_act: bool, tmp_path: Path
) -> None:
    settings = {"bits": bits, "group_size": group_size, "sym": sym, "desc_act": desc_act}
    quantized, plain = make(tmp_path, settings)
    assert torch.equal(logits(quantized), logits(plain))


@pytest.mark.parametrize(("family", "dtype"), [*SERVED[::2], *also_each(*SERVED[1::2])])
def test_families_are_served_in_any_dtype(family: str, dtype: str, tmp_path: Path) -> None:
    """Merged projections, stacked experts and tied heads get the weights that they have in plain checkpoints."""
    quantized, plain = make(tmp_path, family=family, changes={"tie_word_embeddings": family == "qwen3"})
    assert torch.equal(logits(quantized, dtype=dtype), logits(plain, dtype=dtype))


def test_transformers_agrees_in_float64(tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, {"desc_act": True, "sym": False})
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float64)
    ids = torch.tensor([[(7 * i + 3 + 44) % 300 for i in range(4)]])
    with torch.inference_mode():
        expected = model(ids).logits[0]
    found = logits(quantized)[1:5].double()
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def test_version_2_stores_zero_points_themselves(tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, {"checkpoint_format": "gptq_v2", "sym": False})
    assert torch.equal(logits(quantized), logits(plain))


def test_a_quantized_head_is_read(tmp_path: Path) -> None:
    """VOCAB_SIZE is a multiple of 4 alone, as many codes as a word of 8 bits has."""
    quantized, plain = make(tmp_path, {"bits": 8, "lm_head": True}, head=True)
    assert torch.equal(logits(quantized), logits(plain))


def test_biases_of_zeros_are_left_out(tmp_path: Path) -> None:
    """AutoGPTQ writes them for each layer. Other biases that the architecture lacks are refused."""
    quantized, plain = make(tmp_path)
    change(quantized, lambda t: t | {f"{QUERY}.bias": torch.zeros(64)})
    assert torch.equal(logits(quantized), logits(plain))
    change(quantized, lambda t: t | {f"{QUERY}.bias": torch.ones(64)})
    assert f"surplus: {QUERY}.bias" in refusal(quantized)


def test_indices_of_groups_may_be_missing(tmp_path: Path) -> None:
    quantized, plain = make(tmp_path)
    change(quantized, lambda t: {name: x for name, x in t.items() if not name.endswith("g_idx")})
    assert torch.equal(logits(quantized), logits(plain))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bits": 3}, "quantization_config.bits is 3 in config.json; llmfw reads 4, 8"),
        ({"bits": None}, "quantization_config.bits is None"),
        ({"bits": True}, "quantization_config.bits is True"),
        ({"group_size": 40}, "has 96 inputs, which groups of 40 do not divide"),
        ({"group_size": 0}, "quantization_config.group_size is 0"),
        ({"group_size": 16}, "config.json and the layer's other tensors say"),
        ({"sym": "yes"}, "quantization_config.sym is 'yes'"),
        ({"checkpoint_format": "marlin"}, "quantization_config.checkpoint_format is 'marlin'"),
        ({"is_marlin_format": True}, "quantization_config.is_marlin_format is True"),
        ({"dynamic": {"+:.*down.*": {"bits": 8}}}, "quantization_config.dynamic is"),
    ],
)
def test_settings_that_are_not_computed_are_named(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    quantized, _ = make(tmp_path)
    configure(quantized, SETTINGS | settings)
    assert reason in refusal(quantized)


def replaced(leaf: str, new: Any) -> Any:
    def change(tensors: Tensors) -> Tensors:
        return tensors | {f"{QUERY}.{leaf}": new(tensors[f"{QUERY}.{leaf}"])}

    return change


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (replaced("scales", lambda x: x[:1]), f"{QUERY}.scales is [1, 64]"),
        (replaced("scales", lambda x: x.int()), f"{QUERY}.scales is stored as int32"),
        (replaced("scales", lambda x: x * torch.nan), "its weights hold NaN or infinity: model.layers.0"),
        (replaced("qzeros", lambda x: x[:, :4]), f"{QUERY}.qzeros is [2, 4]"),
        (replaced("qzeros", lambda x: x | -1), f"{QUERY}.qzeros has the zero point 15 + 1"),
        (replaced("qzeros", lambda x: x ^ 1), "config.json says sym: true"),
        (replaced("qweight", lambda x: x[:4]), f"{QUERY}.scales is [2, 64]"),
        (replaced("qweight", lambda x: x.half()), f"{QUERY}.qweight is stored as float16"),
        (replaced("g_idx", lambda x: x.flip(0)), "config.json says desc_act: false"),
        (replaced("g_idx", lambda x: x + 1), "does not put 32 inputs into each of 2 groups"),
        (lambda t: {n: x for n, x in t.items() if n != f"{QUERY}.scales"}, f"{QUERY}.scales is missing"),
        (lambda t: {n: x for n, x in t.items() if n != f"{QUERY}.qzeros"}, f"{QUERY}.qzeros is missing"),
        (lambda t: {n: x for n, x in t.items() if n != f"{QUERY}.qweight"}, f"missing: {QUERY}.weight"),
    ],
)
def test_damaged_tensors_are_named(damage: Any, reason: str, tmp_path: Path) -> None:
    quantized, _ = make(tmp_path)
    change(quantized, damage)
    assert reason in refusal(quantized)
