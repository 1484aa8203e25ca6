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


def test_values_are_read_by_name(tmp_path: Path) -> None:
    assert defaults_of(tmp_path, QWEN3) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.mark.parametrize("config", [{}, {**QWEN3, "do_sample": False}, {"top_p": None}])
def test_a_greedy_config_has_no_sampling_defaults(tmp_path: Path, config: Any) -> None:
    assert defaults_of(tmp_path, config) == {}


def test_without_the_file_there_are_no_defaults(tmp_path: Path) -> None:
    assert load_sampling_defaults(str(tmp_path)) == {}


@pytest.mark.parametrize("config", [{"top_p": 5}, {"temperature": "hot"}, {"top_k": 1.5}])
def test_a_value_out_of_range_names_the_file(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        defaults_of(tmp_path, config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_strings", ["END"]),
        ("begin_suppress_tokens", [5]),
        ("sequence_bias", [[[5], -1.0]]),
        ("forced_eos_token_id", 0),
        ("min_new_tokens", 4),
        ("typical_p", 0.9),
        ("epsilon_cutoff", 0.1),
        ("num_beams", 4),
        ("max_new_tokens", 100),
        ("max_length", 100),
    ],
)
def test_an_unsupported_field_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: Any
) -> None:
    assert defaults_of(tmp_path, QWEN3 | {field: value})["top_k"] == 20
    [record] = caplog.records
    assert f"does not apply, and which change answers of transformers: {field}; " in record.getMessage()


def test_fields_without_effect_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    none = {"typical_p": 1.0, "num_beams": 1, "stop_strings": [], "min_new_tokens": 0, "max_length": 4096}
    defaults_of(
        tmp_path, QWEN3 | none | {"use_cache": True, "transformers_version": "5.0", "pad_token_id": 0}
    )
    assert not caplog.records


def test_penalties_without_sampling_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert defaults_of(tmp_path, {"do_sample": False, "repetition_penalty": 1.2}) == {}
    assert "repetition_penalty" in caplog.text


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("do_sample", "false", "true or false"),
        ("do_sample", 0, "true or false"),
        ("stop_strings", 5, "a text or a list"),
        ("typical_p", "0.9", "a number"),
        ("min_new_tokens", True, "a whole number"),
        ("suppress_tokens", {}, "a list"),
    ],
)
def test_a_field_of_another_type_is_refused(tmp_path: Path, field: str, value: Any, wanted: str) -> None:
    with pytest.raises(ModelError, match=rf"generation_config\.json: {field} is .*; it must be {wanted}, or"):
        defaults_of(tmp_path, {field: value})
