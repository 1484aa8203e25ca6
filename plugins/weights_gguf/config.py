"""Makes a model's config from a GGUF file's metadata.

Adds fields that transformers' conversion leaves out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from llmfw.core import ModelError

from .experts import expert_config, num_experts
from .header import Header
from .llama3_rope import llama3_scaling
from .served_files import architecture_of

LARGEST_GEMMAS = {"gemma2": 46, "gemma3": 62}
"""Layers of the models with 27 billion weights. Their attention does not scale by the head's size."""
WITHOUT_WINDOW = ("llama", "qwen2", "qwen3", "qwen3moe")
END_TEXTS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>")
"""Tokens that end a turn or a text, even if the file does not name them so. llama.cpp does the same."""


def config_of(file: Path, header: Header) -> dict[str, Any]:
    """Return the contents of config.json.

    Raises:
        ModelError: the metadata lacks a size, or has a size that transformers would ignore.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config: dict[str, Any] = load_gguf_checkpoint(str(file))["config"]
    config.pop("_model_name_or_path", None)
    if num_experts(architecture_of(header), header):
        config |= expert_config(file, architecture_of(header), header)
    config["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]]
    config["vocab_size"] = _embedding_rows(file, header)
    config["dtype"] = _dtype(header)
    config["tie_word_embeddings"] = "output.weight" not in header.tensors  # it may be in another part
    config["head_dim"] = _head_size(file, header)
    for name in ("bos", "eos", "pad"):
        config.setdefault(f"{name}_token_id", None)  # the class's default would belong to another vocabulary
    _add_attention(file, config, header)
    _add_llama3_scaling(file, header, config)
    return config


def end_tokens(header: Header) -> list[int]:
    """Return the ids of the tokens that end a text: from the metadata, and by the texts in `END_TEXTS`."""
    metadata = header.metadata
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    tokens = metadata.get("tokenizer.ggml.tokens")
    known = [i for i, text in enumerate(tokens) if text in END_TEXTS] if isinstance(tokens, list) else []
    return list(dict.fromkeys(token for token in (*named, *known) if token is not None))


def _embedding_rows(file: Path, header: Header) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise ModelError(f"{file} has no token_embd.weight of two dimensions; it holds no language model")
    return table.shape[0]


def _dtype(header: Header) -> str:
    """Return the dtype for `--dtype auto`.

    It is float32 if all matrices are float32, float16 if all are float32 or float16, and else bfloat16.
    """
    from gguf import GGMLQuantizationType

    kinds = {tensor.kind for tensor in header.tensors.values() if len(tensor.shape) > 1}
    if kinds <= {GGMLQuantizationType.F32}:
        return "float32"
    return "float16" if kinds <= {GGMLQuantizationType.F32, GGMLQuantizationType.F16} else "bfloat16"


def _head_size(file: Path, header: Header) -> int:
    """Return the size of an attention head.

    Raises:
        ModelError: keys and values differ in their size, or only a part of a head is rotated.
    """
    prefix = architecture_of(header)
    width, heads = (
        header.metadata.get(f"{prefix}.{name}") for name in ("embedding_length", "attention.head_count")
    )
    if type(width) is not int or type(heads) is not int or heads < 1:
        raise ModelError(
            f"{file} has {width!r:.40} as embedding_length and {heads!r:.40} as attention.head_count; both must be whole numbers"
        )
    size = header.metadata.get(f"{prefix}.attention.key_length", width // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if (other := header.metadata.get(f"{prefix}.{name}", size)) != size:
            raise ModelError(
                f"{file} has {other!r:.40} as {name}, and heads of {size!r:.40}; models that differ there are not read from GGUF; take "
                "the safetensors checkpoint"
            )
    return int(size)


def _add_attention(file: Path, config: dict[str, Any], header: Header) -> None:
    """Add fields that transformers leaves out: sliding windows, soft caps and Gemma's scale of attention.

    Raises:
        ModelError: the file has a sliding window but its model has none, or the other way round.
    """
    prefix, metadata = architecture_of(header), header.metadata
    window = metadata.get(f"{prefix}.attention.sliding_window")
    if window and prefix in WITHOUT_WINDOW:
        raise ModelError(
            f"{file} has a sliding window of {window!r:.40} tokens, and models of {prefix} have none; take the safetensors checkpoint"
        )
    if window == 0 and prefix in LARGEST_GEMMAS:
        raise ModelError(
            f"{file} has no sliding window, and layers of {prefix} have one; take the safetensors checkpoint"
        )
    if prefix == "phi3":
        config["sliding_window"] = window or None
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if (cap := metadata.get(f"{prefix}.{name}")) is not None:
            config[name] = cap or None
    if prefix in LARGEST_GEMMAS:
        is_largest = config["num_hidden_layers"] == LARGEST_GEMMAS[prefix]
        by_heads = config["hidden_size"] // config["num_attention_heads"]
        config["query_pre_attn_scalar"] = by_heads if is_largest else config["head_dim"]


def _add_llama3_scaling(file: Path, header: Header, config: dict[str, Any]) -> None:
    tensor = header.tensors.get("rope_freqs.weight")
    if tensor is None:
        return
    factors = np.fromfile(tensor.file, np.float32, tensor.num_bytes // 4, offset=tensor.offset)
    scaling = llama3_scaling(factors, config.get("rope_theta", 10_000.0)) if tensor.kind == 0 else None
    if scaling is None:
        raise ModelError(
            f"{file} has factors in rope_freqs.weight that are not those of Llama 3.1 to 3.3; take the safetensors checkpoint"
        )
    config["rope_scaling"] = scaling
