"""Random models of many architectures, a few thousand weights each, as folders that transformers reads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM

VOCAB_SIZE = 300
CONTEXT = 512
WINDOW = 24

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

SERVABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "mistral with a sliding window": ("MistralConfig", {"sliding_window": WINDOW}),
    "gemma 2 (soft cap)": ("Gemma2Config", {"sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "gemma 3": ("Gemma3TextConfig", {"sliding_window": WINDOW, "num_hidden_layers": 6}),
    "phi 3": ("Phi3Config", {}),
    "gpt-neox": ("GPTNeoXConfig", {}),
    "olmo 2": ("Olmo2Config", {}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}),
    "qwen3-moe": ("Qwen3MoeConfig", EXPERTS),
    "gpt-oss (sinks)": (
        "GptOssConfig",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "deepseek v3 (value heads of another size)": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4,
            "head_dim": 8,
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
        },
    ),
}

DIFFERENT = (
    *("llama", "gemma 3", "gpt-neox", "mixtral", "gpt-oss (sinks)"),
    "deepseek v3 (value heads of another size)",
)
"""Servable families whose layers differ most; `make test` runs some tests with these alone."""

STATEFUL: dict[str, tuple[str, dict[str, Any], str]] = {
    "qwen3-next": (
        "Qwen3NextConfig",
        EXPERTS
        | {
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 32,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
        "layers 0, 1, 2 keep a recurrent state",
    ),
    "falcon-h1": (
        "FalconH1Config",
        {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16},
        "layers 0, 1, 2 keep a recurrent state",
    ),
}
"""Models whose layers keep states: config class, changes, and what is said of them where states are not served."""
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "falcon (ALiBi)": ("FalconConfig", {"head_dim": None, "alibi": True}, "its attention adds ALiBi biases"),
    "cpmant": (
        "CpmAntConfig",
        {"dim_ff": 64, "dim_head": 16},
        "do not call transformers' attention interface",
    ),
}


KEPT = 32
"""Random models whose files are kept, about 0.5 MB each: tests beside each other use the same ones."""
_kept: dict[str, tuple[dict[str, bytes], torch.Tensor]] = {}


def save_random_model(folder: Path, config_class: str, changes: dict[str, Any]) -> Path:
    """Write a model of an architecture with random float32 weights, peaked enough to have a clear greedy choice."""
    key = f"{config_class} {sorted(changes.items())}"
    if key not in _kept:
        _kept[key] = _random_model(config_class, changes)
        if len(_kept) > KEPT:
            del _kept[next(iter(_kept))]
    files, drawn_until = _kept[key]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    torch.set_rng_state(drawn_until)  # what a test draws next does not depend on whether the files were kept
    return folder


def _random_model(config_class: str, changes: dict[str, Any]) -> tuple[dict[str, bytes], torch.Tensor]:
    """Return the files of a random model, and torch's random state after drawing it."""
    torch.manual_seed(1)
    settings = {name: value for name, value in (SIZES | changes).items() if value is not None}
    config = getattr(transformers, config_class)(**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.15)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return files, torch.get_rng_state()


def save_byte_tokenizer(folder: Path, first_byte: int) -> None:
    """Write a tokenizer with a token for each byte, from `first_byte` on; special tokens lie below."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: first_byte + i for i, token in enumerate(alphabet)}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[])).save(str(folder / "tokenizer.json"))
