"""Make a model folder of a known model's shape with random weights and a tokenizer of its own; nothing is downloaded.

    python docs/benchmarks/make_model.py FOLDER [smollm2-135m-shape | qwen2-0.5b-shape]

The weights are drawn with seed 0 and saved as bfloat16 safetensors, so two runs with one version of torch give the
same file. The tokenizer is a byte-level BPE trained on the sources of Python's standard library (it differs a little
between Python versions; a comparison uses one folder for all servers). Random weights say nothing about the quality
of text, and the speed of a server that computes every token does not depend on it. Two things follow from them.
Rows of the embedding that stand for no text of their own (rows beyond the tokenizer, special tokens, parts of a
character) are scaled down: the output layer is tied to them, so greedy decoding never leaves the tokenizer, never
ends early, and every token shows as text when it is made. And greedy text of such a model soon repeats itself, so
speculative decoding would look better here than it is.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

VOCABULARY = 32_000  # of the tokenizer; the embeddings have as many rows as those of the models
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORD_PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def library_sources(most: int = 1500) -> Iterator[str]:
    """Yield the texts of standard-library modules in a fixed order, at most `most` of them."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py") if "site-packages" not in p.parts)
    for path in files[:most]:
        yield path.read_text(encoding="utf-8", errors="ignore")[:200_000]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(library_sources(), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL_TOKENS[0],
        eos_token=SPECIAL_TOKENS[2],
        pad_token=SPECIAL_TOKENS[0],
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def smollm2() -> LlamaConfig:
    """Return the config of SmolLM2-135M."""
    return LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
        dtype="bfloat16",
    )


def qwen2() -> Qwen2Config:
    """Return the config of Qwen2-0.5B."""
    return Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=32_768,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
        dtype="bfloat16",
    )


SMOLLM2 = "smollm2-135m-shape"
SHAPES = {SMOLLM2: smollm2, "qwen2-0.5b-shape": qwen2}


def make_weights(tokenizer: PreTrainedTokenizerFast, config: PretrainedConfig) -> PreTrainedModel:
    """Draw the weights, such that greedy decoding picks tokens of `tokenizer` that are text by themselves."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.02)
        rows = model.get_input_embeddings().weight
        silent = [
            i for i in range(len(tokenizer)) if not is_text(tokenizer.decode([i], skip_special_tokens=True))
        ]
        rows[silent + list(range(len(tokenizer), len(rows)))] *= 0.01
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=2, pad_token_id=0)
    return model


def is_text(text: str) -> bool:
    """Whether a token's text is complete: not empty, and no part of a character of several bytes."""
    return bool(text) and "\ufffd" not in text


def make_model(folder: Path, shape: str = SMOLLM2) -> None:
    """Write config, weights and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    model = make_weights(tokenizer, SHAPES[shape]())
    model.save_pretrained(folder)
    keep_old_names(folder / "config.json")
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    print(f"{folder}: {millions:.1f} M parameters, {len(tokenizer)} tokens in the tokenizer")


def keep_old_names(path: Path) -> None:
    """Say the type and the base of rotary embedding in a config.json also as readers before transformers 5 look for them."""
    config = json.loads(path.read_text())
    config |= {"torch_dtype": config["dtype"], "rope_theta": config["rope_parameters"]["rope_theta"]}
    path.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or (sys.argv[2:] and sys.argv[2] not in SHAPES):
        sys.exit(__doc__)
    make_model(Path(sys.argv[1]), *sys.argv[2:])
