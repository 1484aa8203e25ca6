"""Small configs of every model type that transformers has: each size that a default config names, made small."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .config_exceptions import BASE, DEFAULT, EXCEPTIONS

VOCAB_SIZE = 300
CONTEXT = 256
WINDOW = 24
NUM_LAYERS = 4

SIZES: dict[int, tuple[str, ...]] = {
    VOCAB_SIZE: ("vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input", "unpadded_vocab_size"),
    CONTEXT: (
        *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions"),
        *("model_max_length", "context_length", "max_source_positions"),
    ),
    WINDOW: ("sliding_window", "sliding_window_size", "local_attention", "attention_window_size"),
    64: (
        *(
            "hidden_size",
            "d_model",
            "n_embd",
            "embedding_size",
            "word_embed_proj_dim",
            "emb_dim",
            "embedding_dim",
        ),
        *("input_embedding_size", "output_embedding_size", "backbone_hidden_size", "lru_width"),
        *("attention_hidden_size", "mamba_d_ssm"),
    ),
    96: (
        *(
            "intermediate_size",
            "decoder_ffn_dim",
            "encoder_ffn_dim",
            "ffn_dim",
            "ffn_hidden_size",
            "dim_ff",
            "dff",
        ),
        *("d_inner", "n_inner", "dense_intermediate_size", "intermediate_size_mlp", "feed_forward_size"),
    ),
    32: (
        *("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"),
        *("shared_intermediate_size", "shared_experts_intermediate_size", "prompt_mid_dim"),
        *("moe_shared_expert_intermediate_size", "hc_lowrank"),
    ),
    NUM_LAYERS: (
        *(
            "num_hidden_layers",
            "decoder_layers",
            "encoder_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "num_decoder_layers",
        ),
        *("num_blocks", "num_attention_heads", "decoder_attention_heads", "n_head", "n_heads", "num_heads"),
        *(
            "num_decoder_attention_heads",
            "attention_heads",
            "swa_num_attention_heads",
            "encoder_attention_heads",
        ),
        *("num_encoder_attention_heads", "linear_num_heads", "linear_num_value_heads", "mamba_n_heads"),
        *("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    ),
    2: (
        *(
            "num_key_value_heads",
            "swa_num_key_value_heads",
            "num_kv_heads",
            "num_experts_per_tok",
            "moe_topk",
            "moe_k",
        ),
        *(
            "num_experts_per_token",
            "num_encoder_layers",
            "linear_num_key_heads",
        ),
        *("num_kv_shared_layers", "index_topk_blocks", "num_query_groups", "zero_expert_num", "n_group"),
        *("num_expert_group", "prompt_types", "segment_types"),
    ),
    1: ("topk_group", "first_k_dense_replace", "num_dense_layers", "n_shared_experts", "num_shared_experts"),
    16: (
        *(
            "head_dim",
            "swa_head_dim",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_head_dim",
            "dim_head",
        ),
        *("q_lora_rank", "kv_lora_rank", "kv_channels", "attention_head_size", "d_head", "mamba_d_head"),
        *("mamba_d_state", "state_size", "index_head_dim", "hidden_size_per_layer_input", "laurel_rank"),
        *(
            "router_hidden_size",
            "query_pre_attn_scalar",
            "global_head_dim",
            "attention_head_dim",
            "mamba_head_dim",
        ),
        *("ssm_state_size", "o_lora_rank", "lora_rank", "adapter_rank", "mamba_headdim"),
        # with few heads, many tokens have a score of 0, and which of them are selected is left to chance
        "index_n_heads",
    ),
    12: ("v_head_dim",),
    8: ("qk_rope_head_dim", "qk_nope_head_dim", "index_topk", "rotary_dim", "ple_embed_dim"),
}
TINY = {name: size for size, names in SIZES.items() for name in names}
TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "sep_token_id": 1, "cls_token_id": 0}


def default_config(model_type: str) -> PreTrainedConfig:
    """Return a type's default config."""
    # a copy: configs of transformers 5.17 take fields out of the mappings that they are given
    return CONFIG_MAPPING[model_type](**deepcopy(BASE.get(model_type, {})))


def tiny_config(model_type: str, **changes: Any) -> PreTrainedConfig:
    """Return a config of a type whose model has a few thousand weights.

    Args:
        model_type: one that transformers knows.
        changes: fields to set on top; one that is a mapping is merged into a config within the config.
    """
    kind = CONFIG_MAPPING[model_type]
    exceptions = EXCEPTIONS.get(model_type, {})
    fields = merged(merged(_tiny_fields(default_config(model_type)), exceptions), changes)
    return kind(**fields)


def merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with changes on top. Mappings in both are merged; a field that is set to `DEFAULT` is left out."""
    result = dict(fields)
    for name, value in changes.items():
        below = result.get(name)
        if value is DEFAULT:
            result.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(below, dict) and "model_type" in below:
            result[name] = merged(below, value)
        else:
            result[name] = value
    return result


def _tiny_fields(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the fields of a config that have to be other than by default."""
    fields: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            below = {"model_type": value.model_type} if value.model_type else {}
            fields[name] = below | _tiny_fields(value)
        elif name in TOKENS:
            fields[name] = TOKENS[name]
        elif name in TINY and not isinstance(value, list | dict | tuple):
            fields[name] = TINY[name]
    if "kv_lora_rank" in fields and "num_attention_heads" in fields:
        # Latent attention has keys for each head, and calls the width of its rotary embedding that of a head.
        fields["num_key_value_heads"] = fields["num_attention_heads"]
        if "head_dim" in fields and "qk_rope_head_dim" in fields:
            fields["head_dim"] = fields["qk_rope_head_dim"]
    if "is_decoder" in vars(config):
        fields["is_decoder"] = True
    return fields | _few_layers(vars(config))


def _few_layers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return each list that has an entry for each layer with those of `NUM_LAYERS` layers, of all kinds that there are."""
    num_layers = fields.get("num_hidden_layers") or 0
    lists = {
        name: value
        for name, value in fields.items()
        if isinstance(value, list) and len(value) == num_layers and num_layers > NUM_LAYERS
    }
    if not lists:
        return {}
    kinds: dict[tuple[str, ...], int] = {}
    for i in range(num_layers):
        kinds.setdefault(tuple(str(each[i]) for each in lists.values()), i)
    chosen = list(kinds.values())
    chosen += [i for i in range(num_layers) if i not in chosen]
    chosen = sorted(chosen[:NUM_LAYERS])
    return {
        name: [TINY[name]] * NUM_LAYERS if name in TINY else [each[i] for i in chosen]
        for name, each in lists.items()
    }
