"""Configs of small models for `llmfw check`: for each family, one per variant that affects attention."""

from __future__ import annotations

from typing import Any

Configs = dict[str, list[dict[str, Any]]]

SIZES = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
OLD_SIZES = {"vocab_size": 96, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}


def small_configs(*model_types: str, whole: str | None = None) -> Configs:
    """Return the value of `conformance` for the adapter of some model types.

    Args:
        whole: type of multimodal models whose text model is of the first of these types; None: there is no such type.
    """
    configs = [
        {"model_type": name, **_SIZES_OF.get(name, SIZES | {"max_position_embeddings": 64}), **fields}
        for name in model_types
        for fields in _VARIANTS[name]
    ]
    if whole is not None:
        configs.append({"model_type": whole, "text_config": configs[0]})
    return {"configs": configs}


_BART = {
    "vocab_size": 96,
    "d_model": 64,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
_BARTS = (
    *("bart", "blenderbot", "blenderbot-small", "marian", "mbart", "pegasus", "plbart"),
    *("bigbird_pegasus", "mvp", "trocr"),
)
_SIZES_OF: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gptj", "codegen", "openai-gpt"), OLD_SIZES),
    **dict.fromkeys(_BARTS, _BART),
    "xglm": {"vocab_size": 96, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 96}
    | {"max_position_embeddings": 64},
    "bloom": {"vocab_size": 96, "hidden_size": 64, "n_layer": 2},
    "mpt": {"vocab_size": 96, "d_model": 64, "n_layers": 2, "max_seq_len": 64},
}
_LLAMA4: dict[str, Any] = {
    "intermediate_size": 48,
    "intermediate_size_mlp": 96,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 2,
    "attention_chunk_size": 64,
}
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
_DECODER = {"is_decoder": True, "intermediate_size": 96}
_VARIANTS: Configs = {
    "falcon": [
        {"bias": True},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        {"multi_query": False, "parallel_attn": False, "num_kv_heads": 4},
    ],
    "stablelm": [
        {"intermediate_size": 96, "num_key_value_heads": 2, "qk_layernorm": True, "use_qkv_bias": True},
        {"intermediate_size": 96, "num_key_value_heads": 4, "use_parallel_residual": True},
    ],
    "nemotron": [{"intermediate_size": 96, "num_key_value_heads": 2, "head_dim": 16, "attention_bias": True}],
    "gptj": [{"rotary_dim": 8}, {"rotary_dim": 16}],
    "codegen": [{"rotary_dim": 8, "n_ctx": 64}, {"rotary_dim": 16, "n_ctx": 64}],
    "gpt_neo": [
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 5}
    ],
    "llama4_text": [
        _LLAMA4 | {"no_rope_layers": [1, 0], "floor_scale": 4},
        _LLAMA4 | {"no_rope_layers": [0, 1], "use_qk_norm": False, "moe_layers": [1], "attention_bias": True},
    ],
    "diffllama": [
        {"intermediate_size": 96, "num_key_value_heads": 2},
        {"intermediate_size": 96, "num_key_value_heads": 4, "attention_bias": True},
    ],
    "doge": [
        {"intermediate_size": 96, "num_key_value_heads": 2, "keep_window_size": 64},
        {"intermediate_size": 96, "num_key_value_heads": 4, "attention_bias": True, "sliding_window": 7},
    ],
    "gpt_neox_japanese": [{"intermediate_multiple_size": 2}, {"rope_parameters": HALF}],
    **{
        name: [{}, {"scale_embedding": True, "decoder_attention_heads": 2}]
        for name in _BARTS
        if name != "trocr"
    },
    "trocr": [{}, {"scale_embedding": True, "layernorm_embedding": False}],
    "xglm": [{}, {"scale_embedding": False, "add_cross_attention": True}],
    "megatron-bert": [_DECODER, _DECODER | {"num_attention_heads": 2, "add_cross_attention": True}],
    "rembert": [_DECODER | {"input_embedding_size": 32, "output_embedding_size": 48}],
    "big_bird": [
        _DECODER | {"attention_type": "original_full"},
        _DECODER | {"attention_type": "original_full", "use_bias": False, "rescale_embeddings": True},
    ],
    "roformer": [_DECODER, _DECODER | {"embedding_size": 32, "rotary_value": True}],
    "git": [{"intermediate_size": 96, "vision_config": _VISION}],
    "openai-gpt": [{}],
    "bloom": [{"n_head": 4}, {"n_head": 1}, {"n_head": 8, "apply_residual_connection_post_layernorm": True}],
    "mpt": [
        {"n_heads": 4},
        {"n_heads": 8, "attn_config": {"clip_qkv": 0.5, "softmax_scale": 0.3}},
        {"n_heads": 1},
    ],
}
