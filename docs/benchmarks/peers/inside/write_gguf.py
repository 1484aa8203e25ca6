"""Write a model folder of transformers as a GGUF file, for llama.cpp and OpenVINO. Runs where the package `gguf` is.

    python -P write_gguf.py FOLDER FILE bf16|f16|q8_0|q4_0

For decoders of the families Llama and Qwen2 whose output layer is tied to the embedding, with a byte-level BPE
tokenizer: the models of docs/benchmarks/make_model.py. Norms and biases are float32. With q4_0 the embedding has eight
bits. The tokenizer is said to split text as Qwen2's does, which makes no difference for prompts of plain words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize

TYPES = {
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2"}


def main() -> None:
    """Write the file."""
    folder, file, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(file, ARCHITECTURES[config["model_type"]])
    add_config(writer, config)
    writer.add_file_type(TYPES[kind][1])
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    for name, values in tensors(folder / "model.safetensors"):
        add_tensor(writer, name, values, config, TYPES[kind][0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_config(writer: GGUFWriter, config: dict[str, Any]) -> None:
    """Write the model's sizes."""
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or config
    writer.add_name(Path(sys.argv[1]).name)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def add_tokenizer(writer: GGUFWriter, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """Write the tokenizer; rows of the embedding that it has no token for get one that is never used."""
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [TokenType.UNUSED] * len(tokens)
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = text, TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    merges = [each if isinstance(each, str) else " ".join(each) for each in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    if config["bos_token_id"] is None:
        return
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["bos_token_id"])
    writer.add_add_bos_token(False)


def add_tensor(
    writer: GGUFWriter,
    name: str,
    values: np.ndarray[Any, Any],
    config: dict[str, Any],
    kind: GGMLQuantizationType,
) -> None:
    """Write one tensor under the name, in the order and in the type that GGUF has for it."""
    if config["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        values = interleaved(values, heads)
    if values.ndim == 1:
        writer.add_tensor(gguf_name(name), values.astype(np.float32))
        return
    if kind == GGMLQuantizationType.Q4_0 and "embed_tokens" in name:
        kind = GGMLQuantizationType.Q8_0
    writer.add_tensor(gguf_name(name), quantize(values, kind), raw_dtype=kind)


def gguf_name(name: str) -> str:
    """Return GGUF's name of one of transformers' tensors."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.{kind}"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def interleaved(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Return the rows of each head such that the two that rotary embedding turns together are neighbors.

    transformers keeps them half a head apart; of the two architectures llama alone has them side by side in GGUF.
    """
    rows, columns = values.shape
    halves = values.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def tensors(file: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield each tensor of a safetensors file of bfloat16, as float32."""
    raw = np.memmap(file, dtype=np.uint8, mode="r")
    length = int(raw[:8].view(np.uint64)[0])
    for name, about in json.loads(raw[8 : 8 + length].tobytes()).items():
        if name == "__metadata__":
            continue
        if about["dtype"] != "BF16":
            raise SystemExit(f"{name} is {about['dtype']}; only BF16 is read here")
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        wide = raw[begin:end].view(np.uint16).astype(np.uint32) << 16
        yield name, wide.view(np.float32).reshape(about["shape"])


if __name__ == "__main__":
    main()
