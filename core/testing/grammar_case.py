"""Test case for grammar backends: a small vocabulary, example grammars and randomly generated outputs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer

WORDS = ("ye", "yes", "no", "tr", "tru", "true", "fa", "12", "34", '{"', '":', '"a', "ok")
SPECIAL = "<|mark|>"  # a special token of the small vocabulary, in addition to the one that ends an output
EXTRA = 9  # number of ids that the model's logits have in addition to the tokenizer's


class GrammarExample(NamedTuple):
    """A grammar, with texts that match it and texts that do not.

    Attributes:
        kind, source: fields of the `GrammarSpec`.
        fits: texts that are complete outputs.
        misfits: texts that are not complete outputs, such as incomplete ones.
    """

    kind: str
    source: str
    fits: Sequence[str]
    misfits: Sequence[str] = ()

    @property
    def spec(self) -> GrammarSpec:
        """Spec for a backend to compile."""
        return GrammarSpec(self.kind, self.source)


CHOICES = [f"choice {number}" for number in range(100, 140)]
NO_CHOICES = "choice", "choice 140", "choice 1000"
TAG = {"type": "or", "elements": [{"type": "const_string", "value": choice} for choice in CHOICES]}

LONG = "yes, I have read all of it and agree", "no, I have read none of it; I am busy"

EXAMPLES = (
    GrammarExample("regex", "|".join(LONG), LONG, ("yes", LONG[0][:-1], LONG[1] + "y", "".join(LONG))),
    GrammarExample(
        "json_schema", json.dumps({"enum": LONG}), [json.dumps(text) for text in LONG], ('"yes"', LONG[0])
    ),
    GrammarExample("regex", "|".join(CHOICES), CHOICES, NO_CHOICES),
    GrammarExample(
        "json_schema",
        json.dumps({"enum": CHOICES}),
        [json.dumps(text) for text in CHOICES],
        [json.dumps(text) for text in NO_CHOICES],
    ),
    GrammarExample(
        "structural_tag", json.dumps({"type": "structural_tag", "format": TAG}), CHOICES, NO_CHOICES
    ),
    GrammarExample("regex", "yes|no", ("yes", "no"), ("", "y", "yesno", "maybe", " yes")),
    GrammarExample("regex", "[0-9]{2,4}", ("12", "1234", "007"), ("1", "12345", "1a")),
    GrammarExample("regex", "ab*", ("a", "ab", "abbbb"), ("", "b", "aa")),
    GrammarExample(
        "json_schema", '{"enum": ["red", "blue"]}', ('"red"', '"blue"'), ('"green"', "red", '"re')
    ),
    GrammarExample("json_schema", '{"type": "boolean"}', ("true", "false"), ("yes", "1", "tru")),
    GrammarExample("ebnf", 'start: "a" "b"?', ("a", "ab"), ("", "b", "abb")),
    GrammarExample(
        "structural_tag",
        json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "ok!"}}),
        ("ok!",),
        ("", "ok", "ok!!"),
    ),
)
"""Simple grammars of each kind, some with texts that are longer than what a backend may look ahead, and some
with 40 choices."""

SIMILAR = (
    GrammarExample("regex", "yes|no", ("yes", "no"), ("YES", "NO", " yes")),
    GrammarExample("regex", "YES|NO", ("YES", "NO"), ("yes", "no")),
    GrammarExample("regex", " yes|no", (" yes", "no"), ("yes",)),
    GrammarExample("regex", "caf\u00e9", ("caf\u00e9",), ("cafe\u0301", "cafe")),
    GrammarExample("regex", "cafe\u0301", ("cafe\u0301",), ("caf\u00e9", "cafe")),
    GrammarExample("json_schema", '{"enum": ["a b"]}', ('"a b"',), ('"ab"', '"A b"')),
    GrammarExample("json_schema", '{"enum": ["ab"]}', ('"ab"',), ('"a b"',)),
    GrammarExample("json_schema", '{"enum": ["A b"]}', ('"A b"',), ('"a b"',)),
)
"""Grammars that differ in case, in white space, or in the form of a letter."""


def small_tokenizer() -> Tokenizer:
    """Return a tokenizer with a token for each byte and for some words, and two special tokens.

    `</s>` ends an output. `SPECIAL` has no meaning.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = dict.fromkeys([*alphabet, *(word[:end] for word in WORDS for end in range(2, len(word) + 1))])
    merges = [(piece[:-1], piece[-1]) for piece in pieces if len(piece) > 1]
    backend = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["</s>", SPECIAL])
    return Tokenizer(backend, eos_token_ids=(len(pieces),))


@dataclass(frozen=True, slots=True)
class GrammarCase:
    """A backend built for the small vocabulary, and helpers that query its grammars.

    Attributes:
        tokenizer: tokenizer of the small vocabulary.
        vocab_size: width of the logits.
        backend: backend under test.
    """

    tokenizer: Tokenizer
    vocab_size: int
    backend: GrammarBackend

    @classmethod
    def of(cls, kind: type[GrammarBackend]) -> GrammarCase:
        """Return a case with a backend of this class."""
        tokenizer = small_tokenizer()
        size = tokenizer.num_ids + EXTRA
        return cls(tokenizer, size, kind(tokenizer, size))

    @property
    def eos(self) -> int:
        """The token that ends an output."""
        return self.tokenizer.eos_token_ids[0]

    def masks(self, grammars: Sequence[Grammar], filled: int = -1) -> np.ndarray:
        """Return the masks of grammars: [N, words].

        Args:
            filled: initial value of the words, which the backend overwrites; -1 (all bits 1) or 0.
        """
        masks = np.full((len(grammars), (self.vocab_size + 31) // 32), filled, np.int32)
        self.backend.fill_masks(grammars, masks)
        return masks

    def allowed(self, grammar: Grammar) -> set[int]:
        """Return the tokens that a grammar's mask allows."""
        bits = np.unpackbits(self.masks([grammar]).view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    def accepted(self, grammar: Grammar) -> set[int]:
        """Return the tokens that a grammar accepts next; each is tried on a separate copy."""
        return {token for token in range(self.tokenizer.num_ids) if takes(grammar.copy(), token)}

    def text_of(self, tokens: Sequence[int]) -> bytes:
        """Return the concatenated bytes of tokens."""
        return b"".join(map(self.tokenizer.token_bytes, tokens))

    def fits(self, grammar: Grammar, text: str) -> bool:
        """Return whether a text is a complete output of a grammar."""
        grammar = grammar.copy()
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        if not all(takes(grammar, token) for token in tokens):
            return False
        return self.eos in self.allowed(grammar) and (grammar.is_finished() or takes(grammar, self.eos))

    def walk(self, grammar: Grammar, seed: int, limit: int) -> tuple[list[Grammar], str | None]:
        """Generate a random output of at most `limit` allowed tokens.

        Whenever the output may end, it ends with a probability of 1/3.

        Returns:
            The grammar's states, from the first to the last; and the text, or None if the output did not end.
        """
        draw, states, tokens = random.Random(seed), [grammar.copy()], list[int]()
        while len(tokens) < limit:
            state = states[-1].copy()
            choices = sorted(self.allowed(state))
            assert choices, "no token is allowed, not even the end"
            token = self.eos if self.eos in choices and draw.random() < 1 / 3 else draw.choice(choices)
            if token == self.eos:
                return states, self.tokenizer.decode(tokens, skip_special_tokens=False)
            assert takes(state, token), f"the mask allows token {token}, and accept refuses it after {tokens}"
            states.append(state)
            tokens.append(token)
        return states, None

    def num_hastened(self, grammar: Grammar, seed: int, limit: int) -> int:
        """Return the number of tokens until an output ends whose masks are hastened; `limit` if it does not end.

        Draws each token from what the hastened mask leaves, and takes the end as soon as it is allowed.
        """
        draw, state = random.Random(seed), grammar.copy()
        for number in range(limit):
            [mask] = self.masks([state])
            self.backend.hasten(mask)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            choices = np.flatnonzero(bits).tolist()
            if self.eos in choices:
                return number
            token = draw.choice(choices)
            assert takes(state, token), f"hasten leaves token {token}, and accept refuses it"
        return limit


def takes(grammar: Grammar, token: int) -> bool:
    """Advance a grammar by a token; return whether it accepted the token."""
    try:
        grammar.accept(token)
    except ValueError:
        return False
    return True
