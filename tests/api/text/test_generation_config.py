"""The sampling that a model's makers had in mind is read, unless it is not to be sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.text.generation_config import load_sampling_defaults
from llmfw.core.base.errors import ModelError

QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1], "bos": None}


def defaults_of(folder: Path, config: Any) -> dict[str, float]:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return load_sampling_defaults(str(folder))


def test_the_values_are_read_by_their_names(tmp_path: Path) -> None:
    assert defaults_of(tmp_path, QWEN3) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.mark.parametrize("config", [{}, {**QWEN3, "do_sample": False}, {"top_p": None}])
def test_a_model_that_is_not_to_be_sampled_has_none(tmp_path: Path, config: Any) -> None:
    assert defaults_of(tmp_path, config) == {}


def test_without_the_file_there_are_none(tmp_path: Path) -> None:
    assert load_sampling_defaults(str(tmp_path)) == {}


@pytest.mark.parametrize("config", [{"top_p": 5}, {"temperature": "hot"}, {"top_k": 1.5}])
def test_a_value_out_of_range_names_the_file(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        defaults_of(tmp_path, config)
