"""Writes outputs without a model: each token is drawn evenly among those that a grammar allows."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.plugins import model_demo
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend

EXTRA = 40  # ids of the model beyond the tokenizer's
TOKENIZER_SIZE = 4096
VOCAB_SIZE = TOKENIZER_SIZE + EXTRA


@cache
def demo_tokenizer() -> Tokenizer:
    """Return the embedded model's tokenizer."""
    return load_tokenizer(str(Path(model_demo.__file__).parent / "weights"))


@cache
def demo_backend() -> LlguidanceBackend:
    """Return a backend for it, with some ids more than it has tokens."""
    return LlguidanceBackend(demo_tokenizer(), VOCAB_SIZE)


def compiled(kind: str, source: Any) -> Grammar:
    """Return a grammar of the demo tokenizer; a source that is no text is written as JSON."""
    text = source if isinstance(source, str) else json.dumps(source)
    return demo_backend().compile(GrammarSpec(kind, text))


def allowed(grammar: Grammar, backend: LlguidanceBackend | None = None, size: int = VOCAB_SIZE) -> list[int]:
    """Return the tokens that may come next."""
    masks = np.full((1, (size + 31) // 32), -1, np.int32)
    (backend or demo_backend()).fill_masks([grammar], masks)
    return [int(i) for i in np.flatnonzero(np.unpackbits(masks.view(np.uint8), bitorder="little"))]


def walk(grammar: Grammar, seed: int, limit: int = 1500) -> str | None:
    """Return a finished text, None if it was not finished after `limit` tokens.

    The end is taken where it is allowed with one chance in three.
    """
    tokenizer = demo_tokenizer()
    draw, grammar = random.Random(seed), grammar.copy()
    tokens: list[int] = []
    while len(tokens) < limit:
        choices = allowed(grammar)
        ends = [token for token in choices if token in tokenizer.eos_token_ids]
        token = draw.choice(ends) if ends and draw.random() < 1 / 3 else draw.choice(choices)
        grammar.accept(token)
        if token in tokenizer.eos_token_ids:
            return tokenizer.decode(tokens, skip_special_tokens=False)
        tokens.append(token)
    return None


def fits(grammar: Grammar, text: str) -> bool:
    """Return whether a text, as the tokenizer writes it, is a whole output of a grammar."""
    grammar = grammar.copy()
    try:
        for token in demo_tokenizer().encode(text):
            grammar.accept(token)
    except ValueError:
        return False
    return any(token in demo_tokenizer().eos_token_ids for token in allowed(grammar))
