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
    "bart": ("bart", {}),
    "mvp": ("mvp", {}),
    "xglm": ("xglm", {}),
    "megatron-bert": ("megatron-bert", {}),
    "roformer": ("roformer", {}),
    "openai-gpt": ("openai-gpt", {}),
    "bloom": ("bloom", {}),
    "mpt": ("mpt", {}),
    "diffllama": ("diffllama", {}),
    "doge": ("doge", {}),
}
ODD = {"d_model": 60, "decoder_attention_heads": 4}
"""Heads of 15 dimensions."""
FULL = {"attention_type": "original_full"}
OTHER: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {})
        for name in (
            *("blenderbot", "blenderbot-small", "marian", "mbart", "pegasus", "plbart", "bigbird_pegasus"),
            *("trocr", "rembert", "big_bird", "git"),
        )
    },
    "bart, scaled": ("bart", ODD | {"scale_embedding": True, "tie_word_embeddings": False}),
    "blenderbot, a shallow encoder": ("blenderbot", {"encoder_layers": 1, "decoder_layers": 3}),
    "marian, a deep encoder": ("marian", {"encoder_layers": 3, "decoder_layers": 2}),
    "marian, scaled": ("marian", ODD | {"scale_embedding": True, "tie_word_embeddings": False}),
    "pegasus, scaled": ("pegasus", ODD | {"scale_embedding": True, "pad_token_id": 5}),
    "mvp, scaled": ("mvp", ODD | {"scale_embedding": True}),
    "trocr, scaled": ("trocr", ODD | {"scale_embedding": True, "layernorm_embedding": False}),
    "xglm, crossed": ("xglm", {"d_model": 60, "scale_embedding": False, "add_cross_attention": True}),
    "megatron-bert, crossed": ("megatron-bert", {"add_cross_attention": True, "num_attention_heads": 2}),
    "rembert, odd": ("rembert", {"hidden_size": 60, "input_embedding_size": 32, "output_embedding_size": 48}),
    "big_bird, rescaled": ("big_bird", FULL | {"rescale_embeddings": True, "use_bias": False}),
    "roformer, values, too": ("roformer", {"rotary_value": True, "embedding_size": 32}),
    "bloom, three heads": ("bloom", {"hidden_size": 60, "n_head": 3}),
    "bloom, twelve heads": (
        "bloom",
        {"hidden_size": 96, "n_head": 12, "apply_residual_connection_post_layernorm": True},
    ),
    "bloom, divided": ("bloom", {"pretraining_tp": 2, "tie_word_embeddings": False}),
    "mpt, three heads": ("mpt", {"d_model": 60, "n_heads": 3}),
    "mpt, clipped": ("mpt", {"attn_config": {"clip_qkv": 0.5, "softmax_scale": 0.3}}),
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
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "falcon": ("falcon", {"alibi": True}, "its attention adds ALiBi biases that are rounded to bfloat16"),
    "an encoder": ("megatron-bert", {"is_decoder": False}, "its tokens attend to later tokens"),
    "a rotated encoder": ("roformer", {"is_decoder": False}, "its tokens attend to later tokens"),
    "sparse blocks": ("big_bird", {"attention_type": "block_sparse"}, "it has block-sparse attention"),
    "slow": ("bloom", {"pretraining_tp": 2, "slow_but_exact": True}, "its projections have no biases"),
    "prompts": (
        "mvp",
        {"use_prompt": True, "is_encoder_decoder": False},
        "its layers attend to learned prompts",
    ),
    "sines": ("trocr", {"use_learned_position_embeddings": False}, "its positions depend on padding tokens"),
}
BIDIRECTIONAL_IN_5_17 = ("megatron-bert", "rembert", "big_bird", "roformer")
"""Types whose decoders attend to later tokens with transformers 5.17, and are refused for that."""


def skip_in_oldest(model_type: str) -> None:
    """Skip a test of a type that the oldest supported transformers computes wrong itself."""
    if model_type in BIDIRECTIONAL_IN_5_17 and transformers.__version__.startswith("5.17."):
        pytest.skip("transformers 5.17 lets these decoders attend to later tokens")


@pytest.mark.parametrize("name", [*MAIN, *also(OTHER)])
def test_a_family_is_equal_to_transformers(name: str, tmp_path: Path) -> None:
    model_type, changes = FAMILIES[name]
    if name == "gpt_neox_japanese, partial" and transformers.__version__.startswith("5.17."):
        pytest.skip("transformers 5.17 itself fails where a part of each head is rotated")
    skip_in_oldest(model_type)
    if model_type == "doge" and transformers.__version__.startswith("5.17."):
        pytest.skip("the default attention of transformers 5.17 lets Doge's tokens see later ones")
    verdict = try_config(tiny_config(model_type, **changes), tmp_path, TOLERANCE, max_tokens=4)
    assert verdict.outcome == "equal", verdict.reason


@pytest.mark.parametrize(
    "model_type",
    [
        *("falcon", "bloom"),
        *also(
            ["stablelm", "nemotron", "gptj", "codegen", "gpt_neo", "bart", "mpt", "mvp", "xglm", "rembert"]
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", *also(["float16"])])
def test_a_family_loads_in_half_precision(model_type: str, dtype: str, tmp_path: Path) -> None:
    """Loading compares the adapted model with transformers' own."""
    skip_in_oldest(model_type)
    folder = save_checkpoint(tiny_config(model_type), tmp_path)
    config = EngineConfig(model=str(folder), dtype=dtype, device="cpu", context_length=64)
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


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_exact_is_refused(name: str, tmp_path: Path) -> None:
    model_type, changes, reason = REFUSED[name]
    tiny_config(model_type, **changes).save_pretrained(tmp_path)
    config = EngineConfig(model=str(tmp_path), device="cpu", load_format="dummy", context_length=64)
    with pytest.raises(ModelError, match=f"{model_type} cannot be served: {reason}"):
        load_model(config, torch.device("cpu"), load_plugins().registry)


def test_mpt_is_served_up_to_its_longest_sequence(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("mpt", max_seq_len=48), tmp_path)
    registry = load_plugins().registry
    model = load_model(EngineConfig(model=str(folder), device="cpu"), torch.device("cpu"), registry)
    assert model.context_length == 48
    longer = EngineConfig(model=str(folder), device="cpu", context_length=49)
    with pytest.raises(ConfigError, match="2 to 48 tokens"):
        load_model(longer, torch.device("cpu"), registry)


def test_bloom_s_context_may_exceed_its_config(tmp_path: Path) -> None:
    """Linear biases are defined for any position; the config names the length of the training."""
    folder = save_checkpoint(tiny_config("bloom", seq_length=40), tmp_path)
    registry = load_plugins().registry
    for asked, served in ((None, 40), (100, 100)):
        config = EngineConfig(model=str(folder), device="cpu", context_length=asked)
        assert load_model(config, torch.device("cpu"), registry).context_length == served


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
