"""A grammar backend in pure Python: an output is one of a fixed set of strings, one token per byte.

A spec's source is JSON: {"texts": [...]} and how to misbehave: "wait_for" a file, "sleep" seconds and "fail" with a
message when it is compiled, "breaks_at" a position, "mask" that "raises" or is "empty". Tokens are bytes shifted by
`FIRST_BYTE`, so that special tokens have room below.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer

FIRST_BYTE = 10


def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(FIRST_BYTE + byte for byte in text.encode())


def text_of(token_ids: Sequence[int]) -> str:
    return bytes(token - FIRST_BYTE for token in token_ids).decode()


def one_of(*texts: str, **behavior: object) -> GrammarSpec:
    return GrammarSpec("regex", json.dumps({"texts": texts, **behavior}))


class TrieGrammar(Grammar):
    """The strings that are still possible, and how much of them is there."""

    def __init__(
        self,
        texts: frozenset[tuple[int, ...]],
        eos: Sequence[int],
        behavior: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.texts = texts
        self.position = 0
        self.eos = eos
        self.behavior = behavior

    def copy(self) -> TrieGrammar:
        twin = TrieGrammar(self.texts, self.eos, self.behavior)
        twin.position = self.position
        return twin

    def accept(self, token_id: int) -> None:
        if self.position == self.behavior.get("breaks_at"):
            raise ValueError("the grammar broke")
        if token_id in self.eos and any(len(text) == self.position for text in self.texts):
            return
        self.texts = frozenset(
            text for text in self.texts if text[self.position : self.position + 1] == (token_id,)
        )
        if not self.texts:
            raise ValueError(f"token {token_id} is not allowed")
        self.position += 1

    def forced(self) -> Sequence[int]:
        tokens = []
        while not any(len(text) == self.position + len(tokens) for text in self.texts):
            following = {text[self.position + len(tokens)] for text in self.texts}
            if len(following) > 1:
                break
            tokens += following
        return tokens

    def is_finished(self) -> bool:
        return all(len(text) == self.position for text in self.texts)

    def allowed(self) -> set[int]:
        until = time.thread_time() + self.behavior.get("burn", 0)
        while time.thread_time() < until:
            pass
        if self.behavior.get("mask") == "raises":
            raise RuntimeError("the automaton is lost")
        if self.behavior.get("mask") == "empty":
            return set()
        if self.position == self.behavior.get("breaks_at"):
            return set(self.eos)
        following = {text[self.position] for text in self.texts if len(text) > self.position}
        return following | set(self.eos if any(len(text) == self.position for text in self.texts) else ())


class TrieBackend(GrammarBackend):
    """Compiles lists of strings. `compiled` has all specs in the order in which they were."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.compiled: list[GrammarSpec] = []
        self._eos = tokenizer.eos_token_ids

    def compile(self, spec: GrammarSpec) -> TrieGrammar:
        source = json.loads(spec.source)
        while "wait_for" in source and not Path(source["wait_for"]).exists():
            time.sleep(0.005)
        time.sleep(source.get("sleep", 0))
        self.compiled.append(spec)
        if "fail" in source:
            raise RequestError(source["fail"])
        texts = frozenset(map(tokens_of, source["texts"]))
        return TrieGrammar(texts, self._eos, source)

    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        for grammar, words in zip(grammars, masks, strict=True):
            assert isinstance(grammar, TrieGrammar)
            bits = np.zeros(32 * len(words), dtype=np.uint8)
            bits[list(grammar.allowed())] = 1
            words[:] = np.packbits(bits, bitorder="little").view(np.int32)
