"""Finds and loads a model's tokenizer from a folder or hub id."""

from __future__ import annotations

import logging
import os
import string
from collections.abc import Iterable
from itertools import islice, product
from pathlib import Path

import tokenizers

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.tokenizer import Tokenizer

from ..files.model_folder import model_files
from ..files.small_files import check_files, read_json, read_text
from .growth import check_growth
from .template_files import find_chat_template
from .tokenizer_check import check_special_tokens, check_unknown_text, check_vocabulary, switch_dropout_off
from .tokenizer_class import check_class

logger = logging.getLogger(__name__)

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
STAND_IN_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def load_tokenizer(model: str, load_format: str = "auto") -> Tokenizer:
    """Load the tokenizer of a model.

    Args:
        model: a folder, or a hub id. Files of a hub id are downloaded unless they are in the local cache.
        load_format: if "dummy", a model without a tokenizer gets a substitute. The substitute has one token
            per byte, and invented words for the rest of the model's vocabulary.

    Raises:
        ModelError: the files cannot be found, contain no readable tokenizer, or contradict each other.
    """
    folder = model_files(model)
    check_files(folder)
    config = read_json(folder / "tokenizer_config.json")
    eos_token_ids = _eos_token_ids(folder)
    present = [folder / name for name in TOKENIZER_FILES if os.path.lexists(folder / name)]
    if not present:
        if load_format != "dummy":
            raise ModelError(
                f"{folder} has no tokenizer (looked for {', '.join(TOKENIZER_FILES)}); add one of these files"
            )
        return _stand_in(folder, eos_token_ids)
    if present[0].name == "tokenizer.json":
        read_text(present[0])  # reports why the file cannot be read, which the library does not
    backend = _backend(folder)
    check_vocabulary(folder, backend)
    switch_dropout_off(folder, backend)
    check_growth(folder, backend)
    check_unknown_text(folder, backend)
    if present[0].name == "tokenizer.json":
        check_class(folder, backend, config)
    special_tokens = _special_tokens(folder, "tokenizer_config.json", "special_tokens_map.json")
    eos = backend.token_to_id(special_tokens.get("eos_token", ""))
    if eos is not None and eos not in eos_token_ids:
        eos_token_ids = (*eos_token_ids, eos)
    check_special_tokens(folder, backend, special_tokens, eos_token_ids)
    template, file = find_chat_template(folder, config)
    return Tokenizer(
        backend,
        eos_token_ids=eos_token_ids,
        special_tokens=special_tokens,
        chat_template=template,
        template_file=str(file) if template else "",
    )


def _backend(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        if path.is_file():
            return tokenizers.Tokenizer.from_file(str(path))
        from transformers import AutoTokenizer

        converted: tokenizers.Tokenizer = AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False
        ).backend_tokenizer
        return converted
    except Exception as error:  # tokenizers raises plain Exception
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"the tokenizer in {folder} cannot be read: {reason}") from error


def _eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Return the model's end-of-sequence tokens. The generation config takes precedence over the config."""
    for name in ("generation_config.json", "config.json"):
        config = read_json(folder / name)
        inner = config.get("text_config")
        eos = config.get("eos_token_id", inner.get("eos_token_id") if isinstance(inner, dict) else None)
        if eos is not None:
            found = tuple(eos) if isinstance(eos, list) else (eos,)
            if all(type(token) is int and token >= 0 for token in found):
                return found
            raise ModelError(
                f"{folder / name}: eos_token_id is {eos!r:.100}; it must be a token id or a list of them"
            )
    return ()


def _special_tokens(folder: Path, *names: str) -> dict[str, str]:
    """Return special tokens by name, such as "eos_token".

    If several files define a token, the first file takes precedence.

    A file gives a token as a string, or as an object whose "content" is the string.
    """
    found: dict[str, str] = {}
    for file in names:
        for name, token in read_json(folder / file).items():
            text = token.get("content") if isinstance(token, dict) else token
            if name.endswith("_token") and isinstance(text, str):
                found.setdefault(name, text)
            elif name in SPECIAL_TOKENS and token is not None:
                raise ModelError(f"{folder / file}: {name} is {token!r:.100}; it must be a token's text")
    return found


def _stand_in(folder: Path, eos_token_ids: tuple[int, ...]) -> Tokenizer:
    size = read_json(folder / "config.json").get("vocab_size", 0)
    if type(size) is not int:
        raise ModelError(f"{folder / 'config.json'}: vocab_size is {size!r:.100}; it must be a whole number")
    logger.warning("%s has no tokenizer; a stand-in takes its place: one token per byte of text", folder)
    vocabulary = list(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = sorted(vocabulary) + list(islice(_invented_words(), max(0, size - len(vocabulary))))
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(backend, eos_token_ids=eos_token_ids, chat_template=STAND_IN_TEMPLATE)


def _invented_words() -> Iterable[str]:
    """Yield the invented words " aa", " ab", … Byte-level vocabularies write a space as "Ġ"."""
    for length in range(2, 8):
        for letters in product(string.ascii_lowercase, repeat=length):
            yield "Ġ" + "".join(letters)
