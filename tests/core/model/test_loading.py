"""What is loaded of a checkpoint is decided from its config and the settings, before any weights are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from llmfw.core.base.config import EngineConfig
from llmfw.core.model.loading import Loading
from llmfw.core.plugin.registry import Registry

GEMMA_3: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text"},
    "vision_config": {"model_type": "siglip_vision_model"},
}


def dtype_of(folder: Path, config: dict[str, Any], asked: str = "auto") -> torch.dtype:
    """Return the dtype that a config's model is loaded in, on a device that has all dtypes."""
    (folder / "config.json").write_text(json.dumps(config))
    settings = EngineConfig(model=str(folder), load_format="dummy", dtype=asked)
    return Loading.of(settings, torch.device("meta"), Registry(), None, lambda hf_config: AutoModel).dtype


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_dtype_of_the_whole_counts(name: str, tmp_path: Path) -> None:
    """Gemma 3's configs name the dtype once, beside the text's and the image encoder's configs."""
    assert dtype_of(tmp_path, {**GEMMA_3, name: "bfloat16"}) is torch.bfloat16


def test_a_dtype_of_the_text_comes_first(tmp_path: Path) -> None:
    text = {**GEMMA_3["text_config"], "dtype": "float16"}
    assert dtype_of(tmp_path, {**GEMMA_3, "dtype": "bfloat16", "text_config": text}) is torch.float16


def test_a_checkpoint_without_dtype_takes_float32(tmp_path: Path) -> None:
    assert dtype_of(tmp_path, GEMMA_3) is torch.float32
    assert dtype_of(tmp_path, GEMMA_3, asked="float16") is torch.float16
