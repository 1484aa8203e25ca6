"""What contradicts itself in a config is named in one line when a model cannot be loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.engine.process.build import build_engine
from llmfw.core.model.failure.load_failure import explained
from llmfw.core.plugin.plugins import load_plugins

from ...engine.generation.tiny_models import save_random_model

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
