"""Writes tiny GGUF files of models of transformers, as llama.cpp's converter does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
    get_tensor_name_map,
)
from gguf.quants import dequantize, quantize
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.gguf import gguf_tokenizer_mapping

VOCAB_SIZE = 260
END = 256
WRITABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
"""Types that the package can quantize to. Blocks of others are drawn at random."""

reads_vocabularies = pytest.mark.skipif(
    not hasattr(gguf_tokenizer_mapping, "GGUF_PRE_TOKENIZER_SPLITS"),
    reason="llmfw refuses GGUF files with transformers 5.17",
)
"""Marks tests that convert a file's vocabulary."""


def tiny_model(model_type: str, **changes: Any) -> Any:
    """Return a random model of a type, in float32, whose rows are as long as a block of K-quants."""
    sizes = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 128,
        "bos_token_id": END,
        "eos_token_id": END,
        "pad_token_id": END,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes | changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return model.eval()


ARCHITECTURES = {"gemma3_text": "gemma3", "mixtral": "llama", "qwen3_moe": "qwen3moe"}
EXPERTS = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")


def write_gguf(
    file: Path, model: Any, kind: str = "F32", *, tensors_per_part: int = 0, **metadata: Any
) -> None:
    """Write a model into a GGUF file, and set the model's weights to the numbers that the file has for them.

    Args:
        kind: type of the matrices; vectors are F32.
        tensors_per_part: number of tensors after which another part begins, `NAME-00002-of-00003.gguf`; 0: the file is
            whole.
        metadata: further entries, by key, with "__" in place of ".".
    """
    config = model.config
    arch = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = GGUFWriter(file, arch, split_max_tensors=tensors_per_part)
    _add_config(writer, arch, config)
    _add_tokenizer(writer)
    for key, value in metadata.items():
        add = {str: writer.add_string, float: writer.add_float32}.get(type(value), writer.add_uint32)
        add(key.replace("__", "."), value)
    names = get_tensor_name_map(_arch(arch), config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        if found := EXPERTS.fullmatch(name):
            _add_experts(writer, int(found[1]), found[2], parameter.data, kind)
            continue
        stem, _, suffix = name.rpartition(".")
        _add_tensor(writer, f"{names.get_name(stem)}.{suffix}", parameter.data, config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _arch(name: str) -> MODEL_ARCH:
    return next(key for key, value in MODEL_ARCH_NAMES.items() if value == name)


def _add_config(writer: GGUFWriter, arch: str, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(1_000_000.0 if arch == "gemma3" else 10_000.0)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "mixtral":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if arch == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _add_tokenizer(writer: GGUFWriter) -> None:
    tokens = [*sorted(ByteLevel.alphabet()), "<|im_end|>", "he", "<unused>", "<spare>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3, 1, 3, 3])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(END)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")


def _add_tensor(writer: GGUFWriter, name: str, weight: torch.Tensor, config: Any, kind: str) -> None:
    values = weight.numpy()
    if "norm.weight" in name and config.model_type.startswith("gemma"):
        writer.add_tensor(name, values + 1)
        weight.copy_(torch.from_numpy((values + 1) - 1))
        return
    if weight.ndim == 1:
        writer.add_tensor(name, values)
        return
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    is_turned = config.model_type in ("llama", "mixtral")
    turned = next((heads[part] for part in heads if part in name and is_turned), 0)
    data = _encoded(interleaved(values, turned) if turned else values, kind)
    form = GGMLQuantizationType[kind]
    writer.add_tensor(name, data, raw_dtype=form)
    decoded = dequantize(data, form)
    weight.copy_(torch.from_numpy(halved(decoded, turned) if turned else decoded.copy()))


def _add_experts(writer: GGUFWriter, layer: int, name: str, weight: torch.Tensor, kind: str) -> None:
    """Add the matrices of all experts: [experts, 2 * width, hidden], the first half for gates, or [experts, hidden, width]."""
    form = GGMLQuantizationType[kind]
    matrices = (
        {"down": weight}
        if name == "down_proj"
        else dict(zip(("gate", "up"), weight.chunk(2, 1), strict=True))
    )
    for matrix, values in matrices.items():
        data = np.stack([_encoded(each.numpy(), kind) for each in values])
        writer.add_tensor(f"blk.{layer}.ffn_{matrix}_exps.weight", data, raw_dtype=form)
        values.copy_(torch.from_numpy(dequantize(data, form)))


def _encoded(values: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Return a matrix in a type; random blocks with small scales if the package cannot quantize to it."""
    form = GGMLQuantizationType[kind]
    if kind in WRITABLE:
        return quantize(values, form)
    block, block_bytes = GGML_QUANT_SIZES[form]
    rows, columns = values.shape
    random = np.random.default_rng(rows * columns)
    data = random.integers(0, 256, (rows * columns // block, block_bytes), np.uint8)
    scale = np.frombuffer(np.float16(1e-3).tobytes(), np.uint8)
    for start in SCALES[kind]:
        data[:, start : start + 2] = scale
    return data.reshape(rows, columns // block * block_bytes)


SCALES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    **dict.fromkeys(("IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS"), (0,)),
}
"""Positions in a block of its scales in float16."""


def interleaved(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return the rows of each head such that the two that rotary embedding turns together are neighbors."""
    rows, columns = values.shape
    return values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns).copy()


def halved(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return what `interleaved` was given."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns).copy()
