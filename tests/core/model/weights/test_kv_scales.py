"""Scales of keys and values, read from checkpoints that have them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from llmfw.core.base.errors import ModelError
from llmfw.core.model.weights.kv_scales import NAME, Scales, choose_scales, read_scales
from llmfw.core.model.weights.transformers_source import TransformersSource
from llmfw.core.testing.attention_case import make_layer

LAYERS = [make_layer(index=i) for i in range(2)]
E4M3 = torch.float8_e4m3fn


def save(folder: Path, scales: dict[str, float], name: str = "model") -> None:
    tensors = {key: torch.tensor(value) for key, value in scales.items()}
    save_file(tensors | {"model.norm.weight": torch.ones(3)}, folder / f"{name}.safetensors")


def scales_of(folder: Path) -> Scales:
    return read_scales(TransformersSource(str(folder)).matching(NAME))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.layers.1.self_attn.k_scale", "model.layers.1.self_attn.v_scale"),
        ("model.layers.1.self_attn.attn.k_scale", "model.layers.1.self_attn.attn.v_scale"),
        ("model.layers.1.self_attn.k_proj.k_scale", "model.layers.1.self_attn.v_proj.v_scale"),
        ("model.layers.1.self_attn.qkv_proj.k_scale", "model.layers.1.self_attn.qkv_proj.v_scale"),
        ("transformer.h.1.attn.k_scale", "transformer.h.1.attn.v_scale"),
    ],
)
def test_scales_are_found_under_each_tool_s_names(tmp_path: Path, key: str, value: str) -> None:
    save(tmp_path, {key: 0.25, value: 0.5})
    assert scales_of(tmp_path) == {1: (0.25, 0.5)}


def test_shared_scales_and_sharded_files_are_read(tmp_path: Path) -> None:
    save(tmp_path, {"model.layers.0.self_attn.kv_scale": 0.125}, "model-1-of-2")
    save(tmp_path, {"model.layers.11.self_attn.k_scale": 2.0}, "model-2-of-2")
    assert scales_of(tmp_path) == {0: (0.125, 0.125), 11: (2.0, 1.0)}


def test_weight_scales_are_not_kv_scales(tmp_path: Path) -> None:
    save(
        tmp_path, {"model.layers.0.self_attn.k_proj.weight_scale": 3.0, "model.layers.0.mlp.input_scale": 3.0}
    )
    assert scales_of(tmp_path) == {}


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (torch.ones(2), r"self_attn.k_scale of the checkpoint has the shape \[2\]"),
        (torch.tensor(0.0), "is 0.0; a scale is a positive number"),
        (torch.tensor(torch.nan), "is nan; a scale is a positive number"),
    ],
)
def test_an_unusable_scale_is_named(tmp_path: Path, scale: torch.Tensor, said: str) -> None:
    save_file({"model.layers.0.self_attn.k_scale": scale}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=said):
        scales_of(tmp_path)


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        (
            {},
            "with a scale of 1, as the checkpoint has no scales for them: replies to long contexts may be worse",
        ),
        ({"layers.1.k_scale": 0.5}, "no scales for layers 0: theirs is 1"),
        (
            {"layers.1.k_scale": 0.5, "layers.0.v_scale": 0.5},
            "kept in fp8_e4m3, with the checkpoint's scales",
        ),
    ],
)
def test_the_log_names_the_source_of_scales(
    tmp_path: Path, scales: dict[str, float], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, scales)
    with caplog.at_level(logging.INFO, "llmfw.core.model.weights.kv_scales"):
        choose_scales(TransformersSource(str(tmp_path)), LAYERS, E4M3)
    assert said in caplog.text


def test_wider_dtypes_have_no_scales(tmp_path: Path) -> None:
    save(tmp_path, {"layers.0.k_scale": 0.5})
    assert choose_scales(TransformersSource(str(tmp_path)), LAYERS, torch.bfloat16) == {}
