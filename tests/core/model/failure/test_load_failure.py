"""A weights file that cannot be used is named, with what is wrong with it, whether the model generates or embeds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.process.build import build_engine
from llmfw.core.model.failure.load_failure import explained, not_finite
from llmfw.core.plugin.plugins import load_plugins

from ...engine.embedding.encoders import save_encoder
from ...engine.generation.tiny_models import save_random_model


@pytest.fixture(params=["generate", "embed"])
def weights(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The weights file of a model."""
    if request.param == "embed":
        save_encoder(tmp_path)
    else:
        save_random_model(tmp_path, "LlamaConfig", {})
    return tmp_path / "model.safetensors"


def refusal(folder: Path) -> str:
    config = EngineConfig(model=str(folder), device="cpu")
    with pytest.raises(ModelError) as caught:
        build_engine(config, load_plugins().registry)
    return str(caught.value)


def test_an_unreadable_file_is_named(weights: Path) -> None:
    weights.chmod(0)
    if os.access(weights, os.R_OK):
        pytest.skip("this user may read everything")
    assert f"{weights} cannot be read: Permission denied" in refusal(weights.parent)


def test_a_folder_named_like_weights_is_reported(weights: Path) -> None:
    weights.unlink()
    weights.mkdir()
    assert f"{weights} cannot be read: Is a directory" in refusal(weights.parent)


def test_a_truncated_file_is_reported(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert f"{weights} is damaged, or not a safetensors file: " in refusal(weights.parent)


def test_a_git_lfs_pointer_is_reported(weights: Path) -> None:
    weights.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert f"{weights} is damaged, or not a safetensors file: " in refusal(weights.parent)


def test_missing_weights_keep_transformers_message(weights: Path) -> None:
    weights.unlink()
    assert "no file named model.safetensors" in refusal(weights.parent)


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "long_factor": [4.0] * 8,
}


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        (
            "LlamaConfig",
            {"rope_parameters": LONGROPE | {"short_factor": [1.0, 1.1]}},
            "rope_parameters.short_factor has 2 numbers in its config; it must have 8, half the rotary width",
        ),
        (
            "Qwen2Config",
            {"layer_types": ["full_attention", "chunked_attention"], "num_hidden_layers": 2},
            "layer_types has 'chunked_attention' in its config, which this type of model does not compute",
        ),
        (
            "Qwen2Config",
            {"layer_types": ["full_attention", "sliding_attention"], "num_hidden_layers": 2},
            "sliding_window is null or absent in its config, and layer_types names layers that need it",
        ),
    ],
)
def test_contradicting_config_fields_are_named(
    tmp_path: Path, kind: str, changes: dict[str, object], expected: str
) -> None:
    save_random_model(tmp_path, kind, {})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    config = EngineConfig(model=str(tmp_path), device="cpu", load_format="dummy")
    with pytest.raises(ModelError) as caught:
        build_engine(config, load_plugins().registry)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_exception_suggests_a_remedy() -> None:
    assert explained(ZeroDivisionError("division by zero")) == (
        "ZeroDivisionError: division by zero; compare its config.json with the original"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"pad_token_id": 10**6},
            "pad_token_id is 1000000 in its config; it must be a token below the vocab_size",
        ),
        (
            {"vocab_size": 10**8, "hidden_size": 10**8},
            "one of its tensors needs 40,000,000.0 GB, which this machine",
        ),
    ],
)
def test_unbuildable_config_numbers_are_named(tmp_path: Path, changes: dict[str, int], expected: str) -> None:
    save_random_model(tmp_path, "LlamaConfig", {})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": "float32"} | changes))
    config = EngineConfig(model=str(tmp_path), device="cpu", load_format="dummy")
    with pytest.raises(ModelError) as caught:
        build_engine(config, load_plugins().registry)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_buffers_of_eight_bit_floats_are_searched() -> None:
    """torch itself cannot say whether one of them is NaN."""
    model = nn.Module()
    model.register_buffer("codes", torch.zeros(3).to(torch.float8_e4m3fn))
    assert "(" not in not_finite(model, "its logits")
    model.register_buffer("scales", torch.tensor([1.0, torch.nan]).to(torch.float8_e5m2))
    assert "(scales is NaN or infinite)" in not_finite(model, "its logits")
