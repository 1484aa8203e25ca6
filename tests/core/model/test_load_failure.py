"""A weights file that cannot be used is named, with what is wrong with it, whether the model generates or embeds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.process.build import build_engine
from llmfw.core.plugin.plugins import load_plugins

from ..engine.embedding.encoders import save_encoder
from ..engine.generation.tiny_models import save_random_model


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


def test_a_file_that_may_not_be_read(weights: Path) -> None:
    weights.chmod(0)
    if os.access(weights, os.R_OK):
        pytest.skip("this user may read everything")
    assert f"{weights} cannot be read: Permission denied" in refusal(weights.parent)


def test_a_folder_in_a_file_s_place(weights: Path) -> None:
    weights.unlink()
    weights.mkdir()
    assert f"{weights} cannot be read: Is a directory" in refusal(weights.parent)


def test_a_file_that_was_cut_off(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert f"{weights} is damaged, or not a safetensors file: " in refusal(weights.parent)


def test_a_pointer_in_a_file_s_place(weights: Path) -> None:
    weights.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert f"{weights} is damaged, or not a safetensors file: " in refusal(weights.parent)


def test_no_file_at_all_is_told_in_transformers_words(weights: Path) -> None:
    weights.unlink()
    assert "no file named model.safetensors" in refusal(weights.parent)


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
def test_numbers_that_cannot_be_built(tmp_path: Path, changes: dict[str, int], expected: str) -> None:
    save_random_model(tmp_path, "LlamaConfig", {})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": "float32"} | changes))
    config = EngineConfig(model=str(tmp_path), device="cpu", load_format="dummy")
    with pytest.raises(ModelError) as caught:
        build_engine(config, load_plugins().registry)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
