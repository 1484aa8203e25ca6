"""Refuses tokenizers whose token ids do not match their own files or the model."""

from __future__ import annotations

import json
import logging
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MAX_NAMES = 3
_RARE_TEXTS = ("qzxjv", "Ωж漢한", "\U0001f9ff", "\ue000\U0010ffff", string.printable)
"""Texts with words and characters that most vocabularies lack."""

_ADDED = re.compile(r'"added_tokens"\s*:\s*(?=\[)')


def check_vocabulary(folder: Path, backend: tokenizers.Tokenizer) -> None:
    """Raise ModelError for an empty vocabulary, two tokens with one id, or added tokens that the library
    renumbers.

    An added token may replace an ordinary token with the same id. Fine-tuned models replace reserved tokens
    in this way.
    """
    vocabulary = backend.get_vocab()
    if not vocabulary:
        raise ModelError(
            f"the tokenizer in {folder} has no tokens; take the tokenizer files from the model's source"
        )
    if len(set(vocabulary.values())) < len(vocabulary):
        _refuse_equal_ids(folder, backend.get_vocab(with_added_tokens=False))
    for content, number in _added_tokens(folder / "tokenizer.json"):
        found = backend.token_to_id(content)
        if found != number:
            raise ModelError(
                f"{folder / 'tokenizer.json'} gives the added token {content!r:.60} the id {number}, and the package "
                f"tokenizers reads it as {found}, since ids of added tokens follow those of the others; correct the ids"
            )


def switch_dropout_off(folder: Path, backend: tokenizers.Tokenizer) -> None:
    """Turn off random tokenization, so that a tokenizer always returns the same tokens for a text.

    Random tokenization is for training (Provilkov et al., "BPE-Dropout"; Kudo, "Subword Regularization").
    """
    for name in ("dropout", "alpha", "nbest_size"):
        if value := getattr(backend.model, name, None):
            setattr(backend.model, name, None)
            logger.warning(
                "The tokenizer in %s has %s %s, which is for training: it is off", folder, name, value
            )


def check_unknown_text(folder: Path, backend: tokenizers.Tokenizer) -> None:
    """Raise ModelError if a tokenizer cannot encode characters or words that its vocabulary lacks."""
    for text in _RARE_TEXTS:
        try:
            backend.encode(text)
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelError(
                f"the tokenizer in {folder} cannot encode text that its vocabulary lacks ({error}); add its unk_token to the "
                "vocabulary"
            ) from error


def check_special_tokens(
    folder: Path, backend: tokenizers.Tokenizer, special: Mapping[str, str], eos_token_ids: tuple[int, ...]
) -> None:
    """Log a warning for each special token that the vocabulary lacks.

    Args:
        special: special tokens by name ("eos_token"), from the tokenizer's config.
        eos_token_ids: ids of the end-of-sequence tokens that are known already.

    Raises:
        ModelError: the vocabulary lacks the `eos_token`, and `eos_token_ids` is empty: no output would end.
    """
    for name, text in special.items():
        if backend.token_to_id(text) is not None:
            continue
        if name == "eos_token" and not eos_token_ids:
            raise ModelError(
                f"the tokenizer in {folder} has no token {text!r:.60}, its eos_token, and no config names another id: no answer "
                "would end; correct eos_token in tokenizer_config.json, or add eos_token_id to generation_config.json"
            )
        logger.warning(
            "The tokenizer in %s has no token %r, which is its %s: in a prompt that is ordinary text",
            *(folder, text[:60], name),
        )


def check_fit(tokenizer: Tokenizer, model: str, vocab_size: int) -> None:
    """Refuse a tokenizer with token ids that the model lacks.

    If all of them are added tokens, and none is an end-of-sequence token, only logs a warning, because texts
    rarely contain them. Requests with such tokens are refused.

    Args:
        model: name of the model for messages.
        vocab_size: width of the model's logits.

    Raises:
        ModelError: the model lacks the id of an end-of-sequence token, or of a token that is not an added
            token.
    """
    last = vocab_size - 1
    if wrong := [token for token in tokenizer.eos_token_ids if token > last]:
        raise ModelError(
            f"model {model!r}: eos_token_id is {wrong[0]}, and its tokens go from 0 to {last}; correct "
            "generation_config.json, config.json or the tokenizer"
        )
    beyond = tokenizer.tokens_from(vocab_size)
    added = tokenizer.added_tokens()
    if ordinary := [name for name in beyond if name not in added]:
        raise ModelError(
            f"model {model!r}: its tokenizer has {len(ordinary)} tokens beyond the model's, which go from 0 to {last}: "
            f"{_listed({name: beyond[name] for name in ordinary})}; take the tokenizer that belongs to the model"
        )
    if beyond:
        logger.warning(
            "The tokenizer of %s has added tokens beyond the model's, which go from 0 to %d: %s. Prompts with them are refused",
            *(model, last, _listed(beyond)),
        )


def _refuse_equal_ids(folder: Path, vocabulary: Mapping[str, int]) -> None:
    names: dict[int, str] = {}
    for name, number in vocabulary.items():
        if number in names:
            raise ModelError(
                f"the tokenizer in {folder} gives {names[number]!r:.60} and {name!r:.60} the same id, {number}; take the model's "
                "original tokenizer"
            )
        names[number] = name


def _added_tokens(file: Path) -> list[tuple[str, int]]:
    """Return the added tokens and their ids from a tokenizer.json.

    Parses only the added tokens, not the large vocabulary.
    """
    if not file.is_file():
        return []
    text = file.read_text(encoding="utf-8")
    start = _ADDED.search(text)
    try:
        found: Any = json.JSONDecoder().raw_decode(text, start.end())[0] if start else []
    except ValueError:
        return []
    return [(token["content"], token["id"]) for token in found if isinstance(token, dict) and "id" in token]


def _listed(tokens: Mapping[str, int]) -> str:
    rest = len(tokens) - MAX_NAMES
    first = ", ".join(f"{name!r:.40} ({number})" for name, number in list(tokens.items())[:MAX_NAMES])
    return first + (f" and {rest} more" if rest > 0 else "")
