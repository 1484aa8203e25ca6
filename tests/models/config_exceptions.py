"""What the generic sizes of `tiny_config` do not fit, by model type."""

from __future__ import annotations

from typing import Any

DEFAULT: Any = object()
"""Of a field: as the config has it by default."""

_MIXED = ["sliding_attention", "full_attention"] * 2
_NO_EXTRAS = {
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "num_kv_shared_layers": 4,
    "layer_types": _MIXED,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_TWO_ROPES = {"full_attention": _ROPE, "sliding_attention": _ROPE}
_ENCODERS = {
    "text_encoder": {"model_type": "t5"},
    "audio_encoder": {"model_type": "encodec"},
    "decoder": {},
}

BASE: dict[str, dict[str, Any]] = {
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_kv_shared_layers": 30,
        }
    },
    # with transformers 5.17
    "musicgen": _ENCODERS,
    "musicgen_melody": _ENCODERS,
}
"""Fields without which a type's config cannot even be made by default."""

_HYBRID = ["linear_attention", "full_attention"] * 2
_INDEXER = {
    "indexer_n_heads": 16,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
}

_MROPE = {"rope_parameters": _ROPE | {"mrope_section": [2, 3, 3]}}
_HALF_MROPE = {"rope_parameters": _ROPE | {"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}}
"""Rotary embeddings of text and images: frequencies of a head for time, height and width."""

_TWICE = {"attention_hidden_size": 128, "attention_head_dim": 32}

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_d_head": 32, "attn_layer_indices": [1, 3]},
    # block-sparse attention, its default, is refused: it is not for decoders
    "big_bird": {"attention_type": "original_full"},
    "blt": {
        "encoder_hash_byte_group_vocab": 300,
        "encoder_config": {"hidden_size_global": 64},
        "decoder_config": {"hidden_size_global": 64},
    },
    "cohere_compass": {"text_config": {"layer_types": _MIXED, "rope_parameters": _TWO_ROPES}},
    "cohere_compass_text": {"layer_types": _MIXED, "rope_parameters": _TWO_ROPES},
    "cosmos3_edge": {"text_config": _MROPE},
    "cpmant": {"prompt_types": DEFAULT, "segment_types": DEFAULT},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "dots3_note": {
        "vision_config": {"adapter_in_dim": 64, "adapter_out_dim": 64},
        "audio_config": {"adapter_input_size": 64, "adapter_out_dim": 64},
    },
    "gemma3n": {"text_config": {"layer_types": _MIXED}},
    "gemma3n_text": {"layer_types": _MIXED},
    "gemma4": {"text_config": {"layer_types": _MIXED}},
    "gemma4_assistant": {"text_config": _NO_EXTRAS},
    "gemma4_text": {"layer_types": _MIXED},
    "gemma4_unified": {"text_config": {"layer_types": _MIXED}},
    "gemma4_unified_assistant": {"text_config": _NO_EXTRAS},
    "gemma4_unified_text": {"layer_types": _MIXED},
    "glm46v": {"text_config": _MROPE},
    "glm4v": {"text_config": _MROPE},
    "glm4v_moe": {"text_config": _HALF_MROPE},
    "glm_ocr": {"text_config": _MROPE},
    "glmga": {"text_config": _MROPE},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 24},
    "granite_docling": {"vision_config": {"out_hidden_size": 64}},
    "granitemoehybrid": {"mamba_d_head": 32, "layer_types": _HYBRID},
    "hunyuan_vl": {"text_config": _MROPE},
    "inkling2": {"vision_config": {"text_hidden_size": 64}},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "llama4": {"text_config": {"floor_scale": 16}},
    "llama4_text": {"floor_scale": 16},
    "mamba2": {"head_dim": 32, "n_groups": 1},
    "nemo_speechlm": {"head_config": {"audio_hidden_size": 64}},
    "paddleocr_vl": {"text_config": _MROPE},
    "qwen2_5_omni_thinker": {"text_config": _MROPE},
    "qwen2_5_vl": {"text_config": _MROPE},
    "qwen2_vl": {"text_config": _MROPE},
    "qwen4_exp": {"text_config": _INDEXER},
    "qwen4_exp_text": _INDEXER,
    "reformer": {"axial_pos_embds_dim": [32, 32], "axial_pos_shape": [16, 16]},
    "xmod": {"default_language": "en_XX"},
    # transformers limits the time steps of prompts by this, and not those of decoded tokens
    "nemotron_h": {"time_step_min": 1e-9},
    # all hybrid layers share an attention module, whose input is twice as wide
    "zamba": _TWICE | {"layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zamba2": _TWICE
    | {
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
        "layers_block_type": ["linear_attention", "hybrid", "hybrid", "hybrid"],
        "num_mem_blocks": 2,
        "time_step_min": 1e-9,
    },
    "zaya": {"num_experts_per_tok": 1},
}
