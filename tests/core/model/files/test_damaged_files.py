"""A weights file that cannot be used is named, with what is wrong with it, whether the model generates or embeds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.process.build import build_engine
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
