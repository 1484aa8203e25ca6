"""Speeds up the end of JSON output: allows only tokens that close strings, arrays and objects.

Looks only at masks, not at grammars. If letters are allowed, the output is inside a string; if a bracket is
allowed, it is outside of strings.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from llmfw.core import Tokenizer

Words = npt.NDArray[np.int32]

_LETTERS = (b"a", b"i", b"o", b"x")  # these occur in no number and start no literal
_COMMAS = (b",", b", ", b',"', b', "')


class Closing:
    """The tokens of a vocabulary that close JSON values.

    Args:
        tokenizer: tokenizer of the vocabulary.
        vocab_size: number of tokens in a mask.
        eos_token_ids: tokens that end an output.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        texts = {token: tokenizer.token_bytes(token) for token in range(min(tokenizer.num_ids, vocab_size))}
        closers = {token for token, text in texts.items() if text and not text.strip(b'"}]')}
        self._num_words = -(-vocab_size // 32)
        self._ends = self._words(eos_token_ids)
        self._letters = self._words(token for token, text in texts.items() if text in _LETTERS)
        self._quotes = self._words(token for token in closers if texts[token].startswith(b'"'))
        self._brackets = self._words(token for token in closers if not texts[token].startswith(b'"'))
        self._commas = self._words(token for token, text in texts.items() if text in _COMMAS)

    def narrow(self, mask: Words) -> bool:
        """Restrict a mask, in place, to tokens that bring the output's end closer; return whether it changed.

        Args:
            mask: [ceil(vocab / 32)], with at least one allowed token. At least one token stays allowed.
        """
        in_string = bool((mask & self._letters).any())
        if in_string and (mask & self._ends).any():
            return False  # free text, which may end anywhere
        order = (self._quotes,) if in_string else (self._brackets, self._quotes, self._commas)
        for tokens in (self._ends, *order):
            left = mask & tokens
            if left.any():
                narrowed = not np.array_equal(left, mask)
                mask[:] = left
                return narrowed
        return False

    def _words(self, token_ids: Iterable[int]) -> Words:
        bits = np.zeros(self._num_words * 32, dtype=np.uint8)
        bits[list(token_ids)] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)
