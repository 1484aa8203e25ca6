"""Makes tokenizer files from a GGUF file's vocabulary, with transformers' converters."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from llmfw.core import ModelError

from .header import Header

SENTENCEPIECE, BYTE_LEVEL = "llama", "gpt2"
OWN_SPLITS = ("gpt-2", "gpt2")
"""Ways to split text for which transformers' byte-level tokenizer needs no pattern."""


def write_tokenizer(file: Path, folder: Path, header: Header) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template into a folder.

    Raises:
        ModelError: the file has no vocabulary, transformers would split text differently from llama.cpp, or
            transformers is older than 5.18.
    """
    from transformers import AutoTokenizer

    _check(file, header)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    tokenizer.save_pretrained(folder)


def _check(file: Path, header: Header) -> None:
    splits = _splits(file)
    kind = header.metadata.get("tokenizer.ggml.model")
    if not isinstance(header.metadata.get("tokenizer.ggml.tokens"), list):
        raise ModelError(f"{file} has no vocabulary (tokenizer.ggml.tokens); take a file with one")
    if kind not in (SENTENCEPIECE, BYTE_LEVEL):
        raise ModelError(
            f"{file} has a tokenizer of the kind {kind!r:.40}; {SENTENCEPIECE} and {BYTE_LEVEL} are read; take the safetensors checkpoint"
        )
    split = header.metadata.get("tokenizer.ggml.pre")
    if kind == BYTE_LEVEL and split not in splits:
        raise ModelError(
            f"{file} splits text in the way {split!r:.40} (tokenizer.ggml.pre), which transformers does not know; take the safetensors checkpoint"
        )


def _splits(file: Path) -> Collection[str]:
    """Return the names of the ways to split text that transformers knows.

    Raises ModelError if it has no such list.
    """
    import transformers
    from transformers.integrations.gguf import gguf_tokenizer_mapping

    splits = getattr(gguf_tokenizer_mapping, "GGUF_PRE_TOKENIZER_SPLITS", None)
    if splits is None:
        raise ModelError(
            f"{file} cannot be read with transformers {transformers.__version__}, which ignores how the file "
            "splits text; install transformers>=5.18 or take the safetensors checkpoint"
        )
    return (*splits, *OWN_SPLITS)
