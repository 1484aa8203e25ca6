"""Reads which tokens a request allows and forbids (`allowed_token_ids`, `bad_words`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.interfaces.tokenizer import Tokenizer

from .sampling import MAX_BIASES

MAX_WORDS, MAX_CHARACTERS = 256, 4096
"""Maximum number of bad words of a request, and of characters in all of them together.

Each word is encoded twice before the request runs.
"""


class TokenLimits(Protocol):
    """The fields of a request body that `with_limits` reads."""

    allowed_token_ids: list[int] | None
    bad_words: list[str] | None


def with_limits(sampling: SamplingParams, body: TokenLimits, tokenizer: Tokenizer) -> SamplingParams:
    """Return sampling parameters with a request's allowed tokens and bad words.

    Raises:
        RequestError: allowed_token_ids is empty or too long, there are too many bad words or too many
            characters in them, or a word is blank.
    """
    allowed, words = body.allowed_token_ids, body.bad_words
    if allowed is not None and not 0 < len(allowed) <= MAX_BIASES:
        raise RequestError(
            f"allowed_token_ids has {len(allowed)} ids; it must have 1 to {MAX_BIASES}, or be left out",
            param="allowed_token_ids",
        )
    if not allowed and not words:
        return sampling
    return msgspec.structs.replace(
        sampling, allowed_token_ids=tuple(allowed or ()), bad_words=_bad_words(words or (), tokenizer)
    )


def _bad_words(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each word, at the start of a text and after a space."""
    if len(words) > MAX_WORDS:
        raise RequestError(
            f"bad_words has {len(words)} words; at most {MAX_WORDS} are allowed", param="bad_words"
        )
    if sum(map(len, words)) > MAX_CHARACTERS:
        raise RequestError(
            f"bad_words has {sum(map(len, words))} characters in all words; at most {MAX_CHARACTERS} are allowed",
            param="bad_words",
        )
    for i, word in enumerate(words):
        if not word.strip():
            raise RequestError(
                f"bad_words[{i}] is {word!r}; a word has a character that is not a space",
                param=f"bad_words[{i}]",
            )
    spelled = [spelling for word in words for spelling in (word, f" {word.lstrip()}")]
    encoded = tokenizer.encode_all(spelled, add_special_tokens=False)
    return tuple(dict.fromkeys(map(tuple, encoded)))
