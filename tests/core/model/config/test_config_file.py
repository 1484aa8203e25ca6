"""Numbers in config.json that no model can compute with are refused by name, before any weights are read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from llmfw.core.base.errors import ModelError
from llmfw.core.model.checked_load import read_config
from llmfw.core.model.config.config_file import check_experts, check_numbers, read_settings

from ....models.tiny_config import default_config, tiny_config

NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_config("llama").save_pretrained(tmp_path)
    return tmp_path


def refusal(folder: Path, **changes: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ModelError) as caught:
        read_config(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", [NAN, INFINITY, -1e-6, 0, 0.0, "1e-6", True])
@pytest.mark.parametrize("field", ["rms_norm_eps", "layer_norm_epsilon", "rope_theta"])
def test_nonpositive_numbers_are_named(folder: Path, field: str, value: object) -> None:
    assert f"{field} is {value!r} in its config.json; it must be a" in refusal(folder, **{field: value})


@pytest.mark.parametrize("value", [NAN, INFINITY, -2, 0, "2"])
@pytest.mark.parametrize("field", ["rope_theta", "factor", "original_max_position_embeddings"])
def test_rotary_parameters_are_positive(folder: Path, field: str, value: object) -> None:
    rotary = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0} | {field: value}
    expected = f"rope_parameters.{field} is {value!r} in its config.json; it must be a"
    assert expected in refusal(folder, rope_parameters=rotary)


def test_numbers_in_lists_and_inner_configs_are_checked(folder: Path) -> None:
    assert "rope_scaling.long_factor is 0" in refusal(folder, rope_scaling={"long_factor": [1.0, 0]})
    assert "text_config.norm_eps is -1" in refusal(folder, rope_scaling=None, text_config={"norm_eps": -1})
    assert "vision_config.x is nan" in refusal(folder, text_config={}, vision_config={"x": NAN})


@pytest.mark.parametrize("field", ["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("value", [0, -4])
def test_sizes_below_one_are_named(folder: Path, field: str, value: int) -> None:
    assert f"{field} is {value} in its config.json; it must be 1 or more" in refusal(folder, **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("hidden_size", "64", "hidden_size is '64' in its config; it must be int"),
        ("num_key_value_heads", 1.5, "num_key_value_heads is 1.5 in its config; it must be int or null"),
        ("hidden_act", None, "hidden_act is None in its config; it must be str"),
        ("eos_token_id", {}, "eos_token_id is {} in its config; it must be int or list or null"),
    ],
)
def test_a_field_of_another_type_is_named(folder: Path, field: str, value: object, expected: str) -> None:
    assert refusal(folder, **{field: value}).endswith(expected)


@pytest.mark.parametrize("value", [0, 0.0, -5.0, 10**400])
@pytest.mark.parametrize(
    "field",
    [
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "logits_soft_cap",
        "query_pre_attn_scalar",
        "logits_scaling",
        "logit_scale",
        "attention_multiplier",
        "routed_scaling_factor",
        "scale_emb",
        "rope_theta",
    ],
)
def test_factors_of_layers_are_above_zero(field: str, value: float) -> None:
    with pytest.raises(
        ModelError, match=rf"{field} is {str(value)[:50]}.*; it must be a number (above 0|that a float)"
    ):
        check_numbers("m", {field: value})
    check_numbers("m", {field: 0.5, "moe_router_logit_softcapping": 0.0, "logit_scale": "inv_sqrt_d_model"})


def test_valid_special_numbers_are_accepted() -> None:
    settings = {"time_step_limit": [0.0, INFINITY], "max_position_embeddings": -1, "attention_factor": None}
    check_numbers("m", settings | {"sliding_window": -1, "num_experts": 0, "pad_token_id": -1})


def test_every_transformers_default_config_passes() -> None:
    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        settings = json.dumps(default_config(model_type).to_dict(), default=lambda value: None)
        check_numbers(model_type, json.loads(settings))


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_json_is_one_line(folder: Path, depth: int) -> None:
    (folder / "config.json").write_text('{"model_type": ' + "[" * depth + "NaN" + "]" * depth + "}")
    with pytest.raises(ModelError, match=r"nested too deeply|model_type is nan"):
        check_numbers("m", read_settings(str(folder)))


@pytest.mark.parametrize("text", ["", "{", "\xff", "[]", "3", "null"])
def test_invalid_json_configs_are_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(
        ModelError,
        match=r"config\.json (cannot be read: |is empty|is not UTF-8|holds .*; it must hold a JSON object)",
    ):
        read_settings(str(folder))


def test_an_unreadable_config_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the system's own call: the superuser may read everything."""

    def refuse(path: object, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(io, "open", refuse)
    with pytest.raises(ModelError, match=r"config\.json cannot be read: Permission denied"):
        read_settings(str(folder))


@pytest.mark.parametrize("name", ["num_labels", "num_local_experts", "n_head"])
def test_counts_that_would_exhaust_memory_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ModelError, match=rf"{name} is 1000000000 .* must be at most 100,000"):
        check_numbers(str(folder), {name: 10**9})
    check_numbers(str(folder), {name: 8, "max_position_embeddings": 10**7, "num_tokens_per_image": 10**6})


@pytest.mark.parametrize(
    ("field", "value", "most"),
    [
        ("vocab_size", 10**15, "100,000,000"),
        ("hidden_size", 10**12, "100,000,000"),
        ("intermediate_size", 10**30, "100,000,000"),
        ("head_dim", 10**12, "100,000,000"),
        ("num_hidden_layers", 10**12, "10,000"),
    ],
)
def test_impossibly_large_sizes_are_named(folder: Path, field: str, value: int, most: str) -> None:
    assert f"{field} is {value} in its config.json; it must be at most {most}" in refusal(
        folder, **{field: value}
    )


def test_any_context_length_is_accepted(folder: Path) -> None:
    check_numbers("m", {"max_position_embeddings": 10**30})


@pytest.mark.parametrize("name", ["other.safetensors", "../x.safetensors", "model.safetensors", 5])
def test_weights_named_by_the_config_are_refused(folder: Path, name: Any) -> None:
    assert f"names {name!r} as transformers_weights; remove" in refusal(folder, transformers_weights=name)


def test_transformers_check_errors_are_shown_in_plain_text(folder: Path) -> None:
    text = refusal(folder, hidden_size=33)
    assert "its numbers do not fit together: The hidden size (33) is not a multiple" in text
    assert "StrictDataclass" not in text


@pytest.mark.parametrize("value", [None, 5, True])
@pytest.mark.parametrize("name", ["rope_type", "type"])
def test_a_rotary_type_must_be_a_name(folder: Path, name: str, value: object) -> None:
    expected = f"rope_parameters.{name} is {value!r} in its config.json; it must be a name, such as 'default'"
    assert expected in refusal(folder, rope_parameters={name: value, "rope_theta": 1e4, "factor": 4.0})


def test_missing_rotary_fields_are_named(folder: Path) -> None:
    rotary = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4}
    assert refusal(folder, rope_parameters=rotary).endswith(
        "rope_parameters lacks high_freq_factor and low_freq_factor in its config, which the rope_type 'llama3' needs"
    )


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["full_attention"], "layer_types has 1 entries in its config, and num_hidden_layers is 4; correct"),
        (["full_attention", "evil", "x", "y"], "layer_types has 'evil' in its config; it must have full_att"),
    ],
)
def test_wrong_layer_types_are_named(tmp_path: Path, types: list[str], expected: str) -> None:
    tiny_config("qwen2").save_pretrained(tmp_path)
    assert expected in refusal(tmp_path, layer_types=types)


@pytest.mark.parametrize("value", [9, 0, -1])
def test_impossible_counts_of_active_experts_are_refused(tmp_path: Path, value: int) -> None:
    tiny_config("mixtral", num_local_experts=4).save_pretrained(tmp_path)
    expected = f"num_experts_per_tok is {value} in its config; it must be 1 to 4, its num_local_experts"
    assert expected in refusal(tmp_path, num_experts_per_tok=value)


def test_every_transformers_default_expert_count_passes() -> None:
    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        config = default_config(model_type)
        check_experts(model_type, config.get_text_config(decoder=True))
