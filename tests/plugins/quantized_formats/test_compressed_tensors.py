"""Checkpoints of compressed-tensors are served as their weights, dequantized in float64, are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from llmfw.core.base.errors import ModelError
from llmfw.plugins.quantized_formats.compressed_scheme import read_scheme

from .folders import Written, change, configure, logits, pack_words, quantized_pair, refusal

QUERY = "model.layers.0.self_attn.q_proj"
BLOCK = [48, 40]


def settings(form: str, weights: dict[str, Any], **others: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group | others},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def weights(bits: int, kind: str, strategy: str, **others: Any) -> dict[str, Any]:
    return {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "symmetric": True,
        "dynamic": False,
    } | others


PACKED = settings("pack-quantized", weights(4, "int", "group", group_size=32))
CASES: dict[str, dict[str, Any]] = {
    "int4 group": PACKED,
    "int4 asymmetric": settings("pack-quantized", weights(4, "int", "group", group_size=16, symmetric=False)),
    "int4 act-order": settings(
        "pack-quantized", weights(4, "int", "group", group_size=32, actorder="group", symmetric=False)
    ),
    "int4 static order": settings(
        "pack-quantized", weights(4, "int", "group", group_size=32, actorder="weight")
    ),
    "int8 packed channel": settings("pack-quantized", weights(8, "int", "channel")),
    "int8 channel": settings("int-quantized", weights(8, "int", "channel")),
    "int8 asymmetric": settings("int-quantized", weights(8, "int", "channel", symmetric=False)),
    "int8 tensor": settings("int-quantized", weights(8, "int", "tensor")),
    "fp8 channel": settings("float-quantized", weights(8, "float", "channel")),
    "fp8 tensor": settings("naive-quantized", weights(8, "float", "tensor")),
    "fp8 block": settings("float-quantized", weights(8, "float", "block", block_structure=BLOCK)),
}


def write(
    generator: np.random.Generator, out_features: int, in_features: int, given: dict[str, Any]
) -> Written:
    """Return a random layer as compressed-tensors stores it, and its weight."""
    scheme = given["config_groups"]["group_0"]["weights"]
    bits, half = scheme["num_bits"], 1 << (scheme["num_bits"] - 1)
    of_row, of_column = np.arange(out_features), np.zeros(in_features, dtype=np.int64)
    if scheme["strategy"] == "tensor":
        of_row = np.zeros_like(of_row)
    elif scheme["strategy"] == "group":
        of_column = np.arange(in_features) // scheme["group_size"]
    elif scheme["strategy"] == "block":
        of_row, of_column = np.arange(out_features) // BLOCK[0], np.arange(in_features) // BLOCK[1]
    tensors = {}
    if scheme.get("actorder") == "group":
        of_column = generator.permutation(of_column)
        tensors["weight_g_idx"] = torch.from_numpy(of_column.astype(np.int32))
    shape = of_row.max() + 1, of_column.max() + 1
    scales = torch.from_numpy(generator.uniform(0.3, 1.2, shape) * 0.25 / half).bfloat16()
    zeros = np.zeros(shape, dtype=np.int64)
    codes: Any = generator.integers(-half, half, (out_features, in_features))
    if scheme["type"] == "float":
        scales = (scales.float() * 16).bfloat16()
        floats = torch.from_numpy(generator.normal(0, 1, codes.shape)).to(torch.float8_e4m3fn)
        tensors["weight"], codes = floats, floats.double().numpy()
    elif not scheme["symmetric"]:
        zeros = generator.integers(-half, half, shape)
    tensors["weight_scale"] = scales.reshape(1) if scheme["strategy"] == "tensor" else scales
    exact = scales.double().numpy()[of_row][:, of_column] * (codes - zeros[of_row][:, of_column])
    if given["format"] == "pack-quantized":
        tensors["weight_packed"] = pack_words(codes + half, bits)
        tensors["weight_shape"] = torch.tensor([out_features, in_features])
        if not scheme["symmetric"]:
            tensors["weight_zero_point"] = pack_words((zeros + half).T, bits).T
    elif scheme["type"] == "int":
        tensors["weight"] = torch.from_numpy(codes.astype(np.int8))
        if not scheme["symmetric"]:
            tensors["weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
    return tensors, exact


def make(folder: Path, given: dict[str, Any] | None = None, **options: Any) -> tuple[Path, Path]:
    given = given or PACKED
    return quantized_pair(folder, given, lambda *sizes: write(*sizes, given), **options)


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_dequantized_weights(case: str, tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, CASES[case])
    assert torch.equal(logits(quantized), logits(plain))


@pytest.mark.parametrize("family", ["phi 3", "mixtral", "qwen3-moe"])
def test_families_are_served_in_bfloat16(family: str, tmp_path: Path) -> None:
    quantized, plain = make(tmp_path, family=family)
    assert torch.equal(logits(quantized, dtype="bfloat16"), logits(plain, dtype="bfloat16"))


def test_a_scheme_may_name_layers(tmp_path: Path) -> None:
    """The scheme that names a layer goes before the one for all linear layers."""
    quantized, plain = make(tmp_path)
    named = settings("int-quantized", weights(8, "int", "channel"), targets=["re:.*no_such_layer"])
    both = {
        "group_1": named["config_groups"]["group_0"] | {"format": "int-quantized"},
        **PACKED["config_groups"],
    }
    configure(quantized, PACKED | {"config_groups": both})
    assert torch.equal(logits(quantized), logits(plain))
    both["group_1"]["targets"] = [f"re:.*{QUERY}"]
    configure(quantized, PACKED | {"config_groups": both})
    assert f"{QUERY}.weight is missing" in refusal(quantized)


def test_a_target_that_takes_years_is_refused() -> None:
    group = PACKED["config_groups"]["group_0"] | {"targets": ["re:(.|..|...)*q$"]}
    scheme = read_scheme("group_0", group, "pack-quantized")
    with pytest.raises(ModelError, match="takes more than 1 s for the name 'model"):
        scheme.names("model.layers.0.self_attn.q_proj")


def activations(kind: str, strategy: str, **others: Any) -> dict[str, Any]:
    return {
        "num_bits": 8,
        "type": kind,
        "strategy": strategy,
        "symmetric": True,
        "dynamic": strategy == "token",
    } | others


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("strategy", ["token", "tensor"])
def test_inputs_are_rounded_as_defined(kind: str, strategy: str, tmp_path: Path) -> None:
    form = "int-quantized" if kind == "int" else "float-quantized"
    given = settings(form, weights(8, kind, "channel"), input_activations=activations(kind, strategy))
    quantized, plain = make(tmp_path, given)
    scale = torch.tensor([0.02])
    if strategy == "tensor":
        layers = [
            name for name in load_file(quantized / "model.safetensors") if name.endswith("weight_scale")
        ]
        change(
            quantized, lambda t: t | {n.replace("weight_scale", "input_scale"): scale.clone() for n in layers}
        )
    found, exact = logits(quantized), logits(plain)

    def rounded(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        x = inputs[0].numpy()
        half = np.float32(127.5 if kind == "int" else 448)
        step = np.abs(x).max(-1, keepdims=True) / half if strategy == "token" else scale.numpy()
        codes = torch.from_numpy(
            np.clip(x / step, -448 if kind == "float" else -128, 448 if kind == "float" else 127)
        )
        whole = codes.to(torch.float8_e4m3fn).float() if kind == "float" else codes.round()
        return (whole * torch.from_numpy(np.asarray(step)),)

    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(rounded)
    with torch.inference_mode():
        expected = model(torch.tensor([[(7 * i + 3 + 44) % 300 for i in range(4)]])).logits[0]
    largest = expected.abs().max()
    assert (found[1:5] - expected).abs().max() < 1e-4 * largest
    assert (found - exact).abs().max() > 1e-3 * largest


def test_experts_with_rounded_inputs_are_refused(tmp_path: Path) -> None:
    given = settings(
        "int-quantized", weights(8, "int", "channel"), input_activations=activations("int", "token")
    )
    quantized, _ = make(tmp_path, given, family="mixtral")
    assert "has no linear layer of this name (experts of a mixture are one tensor)" in refusal(quantized)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (PACKED | {"format": "mxfp4-pack-quantized"}, "quantization_config.format is 'mxfp4-pack-quantized'"),
        (PACKED | {"quantization_status": "frozen"}, "quantization_status is 'frozen'"),
        (PACKED | {"transform_config": {"R1": 1}}, "transform_config is"),
        (PACKED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config is"),
        (PACKED | {"config_groups": {}}, "config_groups is {}"),
        (
            settings(
                "int-quantized",
                weights(8, "int", "channel"),
                input_activations=activations("int", "tensor", dynamic=True),
            ),
            "config_groups.group_0.input_activations.strategy is 'tensor'",
        ),
        (settings("pack-quantized", weights(3, "int", "group", group_size=32)), "weights.num_bits is 3"),
        (settings("pack-quantized", weights(4, "int", "group", group_size=40)), "groups of 40 do not divide"),
        (settings("pack-quantized", weights(4, "int", "tensor_group")), "strategy is 'tensor_group'"),
        (settings("pack-quantized", weights(4, "int", "channel")), ".weight_scale is [64, 3]"),
        (
            settings("pack-quantized", weights(4, "int", "group", group_size=32, symmetric=False)),
            "down_proj.weight_zero_point is missing",
        ),
        (
            settings("pack-quantized", weights(4, "int", "group", group_size=32), targets=["lm_head"]),
            "no target of quantization_config.config_groups in config.json names it",
        ),
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
        (
            "weight_shape",
            torch.tensor([64, 60]),
            "weight_shape says [64, 60], and the packed weight is [64, 64]",
        ),
        ("weight_zero_point", torch.ones(64, 2, dtype=torch.int8), "config.json says symmetric: true"),
        ("weight_g_idx", torch.arange(64, dtype=torch.int32) % 2, "config.json says no actorder"),
    ],
)
def test_damaged_tensors_are_named(leaf: str, new: Any, reason: str, tmp_path: Path) -> None:
    quantized, _ = make(tmp_path)
    name = f"{QUERY}.{leaf}"
    change(
        quantized,
        lambda t: {n: x for n, x in t.items() if n != name} | ({} if new is None else {name: new}),
    )
    assert f"{QUERY}.{reason}" in refusal(quantized) or reason in refusal(quantized)
