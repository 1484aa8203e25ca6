"""Older families are served exactly: their tokens and log probabilities are those of transformers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.model.models import load_model
from llmfw.core.plugin.plugins import load_plugins

from ...length import also
from ...models.checkpoint import save_checkpoint
from ...models.tiny_config import tiny_config
from ...models.trial import TOLERANCE, try_config

GROUPED = {"new_decoder_architecture": True, "num_kv_heads": 2}
MAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon, one key": ("falcon", {}),
    "falcon, grouped": ("falcon", GROUPED),
    "falcon, a key for each head": (
        "falcon",
        {"multi_query": False, "parallel_attn": False, "num_kv_heads": 4, "bias": True},
    ),
    "stablelm": ("stablelm", {"qk_layernorm": True, "use_qkv_bias": True}),
    "nemotron": ("nemotron", {}),
    "gptj": ("gptj", {}),
    "codegen": ("codegen", {}),
    "gpt_neo": ("gpt_neo", {}),
    "gpt_neox_japanese": ("gpt_neox_japanese", {}),
    "llama4": ("llama4_text", {"floor_scale": 16}),
    "diffllama": ("diffllama", {}),
    "doge": ("doge", {}),
}
OTHER: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon, one norm": ("falcon", GROUPED | {"num_ln_in_parallel_attn": 1}),
    "falcon, not parallel": ("falcon", {"parallel_attn": False}),
    "falcon, scaled": (
        "falcon",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "stablelm, parallel": ("stablelm", {"use_parallel_residual": True, "num_key_value_heads": 4}),
    "nemotron, biased": ("nemotron", {"attention_bias": True, "mlp_bias": True}),
    "gptj, whole heads": ("gptj", {"rotary_dim": 16}),
    "llama4, other layers": (
        "llama4_text",
        {"floor_scale": 7, "no_rope_layers": [0, 1, 1, 0], "use_qk_norm": False},
    ),
    "llama4, with images": ("llama4", {"text_config": {"floor_scale": 16}}),
    "diffllama, a key for each head": ("diffllama", {"num_key_value_heads": 4, "attention_bias": True}),
    "doge, no window": ("doge", {"sliding_window": None, "num_key_value_heads": 4, "attention_bias": True}),
    "doge, odd heads": ("doge", {"head_dim": 10, "sliding_window": None}),
    "gpt_neo, small window": ("gpt_neo", {"window_size": 1}),
    "gpt_neo, global": ("gpt_neo", {"attention_types": [[["global"], 4]]}),
    "gpt_neox_japanese, partial": (
        "gpt_neox_japanese",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
}
FAMILIES = MAIN | OTHER


@pytest.mark.parametrize("name", [*MAIN, *also(OTHER)])
def test_a_family_is_equal_to_transformers(name: str, tmp_path: Path) -> None:
    model_type, changes = FAMILIES[name]
    if name == "gpt_neox_japanese, partial" and transformers.__version__.startswith("5.17."):
        pytest.skip("transformers 5.17 itself fails where a part of each head is rotated")
    if model_type == "doge" and transformers.__version__.startswith("5.17."):
        pytest.skip("the default attention of transformers 5.17 lets Doge's tokens see later ones")
    verdict = try_config(tiny_config(model_type, **changes), tmp_path, TOLERANCE, max_tokens=4)
    assert verdict.outcome == "equal", verdict.reason


@pytest.mark.parametrize(
    "model_type", ["falcon", *also(["stablelm", "nemotron", "gptj", "codegen", "gpt_neo"])]
)
@pytest.mark.parametrize("dtype", ["bfloat16", *also(["float16"])])
def test_a_family_loads_in_half_precision(model_type: str, dtype: str, tmp_path: Path) -> None:
    """Loading compares the adapted model with transformers' own."""
    folder = save_checkpoint(tiny_config(model_type), tmp_path)
    config = EngineConfig(model=str(folder), dtype=dtype, device="cpu")
    model = load_model(config, torch.device("cpu"), load_plugins().registry)
    assert str(model.dtype) == f"torch.{dtype}"


def test_windows_of_gpt_neo_reach_the_backend(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("gpt_neo"), tmp_path)
    config = EngineConfig(model=str(folder), device="cpu")
    layers = load_model(config, torch.device("cpu"), load_plugins().registry).layers
    assert [layer.sliding_window for layer in layers] == [None, 24, None, 24]
    assert {layer.scale for layer in layers} == {1.0}


def test_keys_of_grouped_heads_are_stored_once(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("falcon", **GROUPED), tmp_path)
    config = EngineConfig(model=str(folder), device="cpu")
    layers = load_model(config, torch.device("cpu"), load_plugins().registry).layers
    assert {(layer.num_heads, layer.num_kv_heads) for layer in layers} == {(4, 2)}


def test_falcon_with_alibi_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("falcon", alibi=True), tmp_path)
    config = EngineConfig(model=str(folder), device="cpu")
    with pytest.raises(ModelError, match=r"falcon cannot be served: its attention adds ALiBi biases"):
        load_model(config, torch.device("cpu"), load_plugins().registry)


def test_llama4_is_served_up_to_a_chunk(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("llama4_text", attention_chunk_size=48), tmp_path)
    registry = load_plugins().registry
    model = load_model(EngineConfig(model=str(folder), device="cpu"), torch.device("cpu"), registry)
    assert model.context_length == 48
    longer = EngineConfig(model=str(folder), device="cpu", context_length=49)
    with pytest.raises(ConfigError, match="2 to 48 tokens"):
        load_model(longer, torch.device("cpu"), registry)


def test_doge_is_served_up_to_its_window(tmp_path: Path) -> None:
    """Beyond, each token would attend only to those with the largest numbers."""
    folder = save_checkpoint(tiny_config("doge", keep_window_size=40), tmp_path)
    registry = load_plugins().registry
    model = load_model(EngineConfig(model=str(folder), device="cpu"), torch.device("cpu"), registry)
    assert model.context_length == 40
    longer = EngineConfig(model=str(folder), device="cpu", context_length=41)
    with pytest.raises(ConfigError, match="2 to 40 tokens"):
        load_model(longer, torch.device("cpu"), registry)


def test_llama4_without_the_adapter_is_refused(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("llama4_text"), tmp_path)
    config = EngineConfig(model=str(folder), device="cpu", model_adapter="none")
    with pytest.raises(ModelError, match="neither causal nor a sliding window"):
        load_model(config, torch.device("cpu"), load_plugins().registry)
