"""A model whose frequencies depend on the longest sequence of a step is refused, however its config says so."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.model.models import load_model
from llmfw.core.plugin.registry import Registry

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config

ORIGINAL, LONGEST = 64, 256
ROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
}
INSIDE = ROPE | {"original_max_position_embeddings": ORIGINAL}
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
LAYERED = {"full_attention": INSIDE, "sliding_attention": PLAIN}
SIZE = {"max_position_embeddings": LONGEST}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "at the top": (
        "llama",
        SIZE | {"rope_parameters": ROPE, "original_max_position_embeddings": ORIGINAL},
    ),
    "of a kind of layers": ("gemma3_text", SIZE | {"rope_parameters": LAYERED}),
}


@pytest.fixture(params=CONFIGS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model_type, fields = copy.deepcopy(CONFIGS[request.param])
    save_checkpoint(tiny_config(model_type, **fields), tmp_path)
    config = tmp_path / "config.json"  # as people write it: transformers would complete the rotary parameters
    config.write_text(json.dumps(json.loads(config.read_text()) | CONFIGS[request.param][1]))
    return tmp_path


def load(folder: Path, context_length: int | None) -> int:
    config = EngineConfig(model=str(folder), dtype="float32", device="cpu", context_length=context_length)
    return load_model(config, torch.device("cpu"), Registry()).context_length


def test_factors_by_the_longest_sequence_are_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="depend on the longest sequence of a step, up to 256"):
        load(folder, None)


def test_up_to_the_original_length_it_is_served(folder: Path) -> None:
    assert load(folder, ORIGINAL) == ORIGINAL


def test_long_factors_for_all_sequences_pass(tmp_path: Path) -> None:
    config = tiny_config("llama", **SIZE, rope_parameters=copy.deepcopy(INSIDE))
    assert load(save_checkpoint(config, tmp_path), None) == LONGEST


def test_a_limit_at_the_original_length_passes(tmp_path: Path) -> None:
    rope = PLAIN | {"rope_type": "dynamic", "factor": 2.0}
    assert load(save_checkpoint(tiny_config("llama", **SIZE, rope_parameters=rope), tmp_path), None)
