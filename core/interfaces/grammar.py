"""The interface of a grammar backend: what an output has to be → which tokens may come next.

The kinds of `GrammarSpec` that a backend may be given:

    json_schema     JSON text of a schema; `{}` or `true` for any JSON value
    regex           a regular expression, for the whole output
    ebnf            a context-free grammar: Lark's form, or llama.cpp's GBNF
    structural_tag  JSON text of {"type": "structural_tag", "format": FORMAT}, where a FORMAT is one of
                    {"type": "json_schema", "json_schema": SCHEMA}
                    {"type": "regex", "pattern": TEXT}          {"type": "grammar", "grammar": EBNF}
                    {"type": "const_string", "value": TEXT}     {"type": "any_text", "excludes": [TEXT, ...]}
                    {"type": "sequence", "elements": [FORMAT, ...]}
                    {"type": "or", "elements": [FORMAT, ...]}
                    {"type": "tag", "begin": TEXT, "content": FORMAT, "end": TEXT}
                    {"type": "triggered_tags", "triggers": [TEXT, ...], "tags": [TAG, ...],
                     "at_least_one": BOOL, "stop_after_first": BOOL}: free text, in which a trigger begins a tag
                    {"type": "tags_with_separator", "tags": [TAG, ...], "separator": TEXT,
                     "at_least_one": BOOL, "stop_after_first": BOOL}
                    (the form that xgrammar introduced)

A text in a format may be, or contain, the text of a special token; it then stands for that token.
This module knows nothing of sequences and sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llmfw.core.base.request import GrammarSpec

    from .tokenizer import Tokenizer


class Grammar(ABC):
    """The state of one output in a compiled grammar."""

    @abstractmethod
    def copy(self) -> Grammar:
        """Return a grammar of its own in the same state. Cheap: a compiled grammar is kept, and copied per request."""

    @abstractmethod
    def accept(self, token_id: int) -> None:
        """Go on to the state after this token.

        Raises ValueError if it is not allowed, GrammarCostError if the grammar has turned out too complex to go on.

        The end-of-sequence token is given too, unless the grammar is finished: one that cannot go on raises here.
        """

    @abstractmethod
    def forced(self) -> Sequence[int]:
        """Return the tokens that have to come next as the grammar leaves only one way, in the model's own
        tokenisation; often none."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Return whether nothing but the end of the output may follow."""


class GrammarBackend(ABC):
    """Compiles grammars for one vocabulary.

    Args:
        tokenizer: the model's. Its `eos_token_ids` end an output.
        vocab_size: width of the model's logits, which may be more than the tokenizer has tokens.
        options: given by this name, and only to a backend that has some: an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o grammar.key=value`. A backend with options overrides this."""

    @abstractmethod
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None: ...

    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        """Return a spec that `compile` turns into the same grammar with less work, of any kind that `compile` knows.

        Called in a process apart, once for each grammar, before the engine's `compile`: put work here that holds the
        interpreter's lock or recurses on what a client wrote. The default returns the spec unchanged.

        Raises:
            RequestError: as `compile`.
        """
        return spec

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> Grammar:
        """Return a grammar at its beginning.

        Takes specs as clients write them and those that `prepare` returns. The server calls it first in a process
        that is forked from the one that built the backend, and may crash or be killed there; then in threads of the
        engine, several at once: it must not hold the interpreter's lock for long.

        Raises:
            RequestError: the spec is broken, or asks for what this backend cannot hold to; says what.
        """

    @abstractmethod
    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        """Write, for each grammar, which tokens may come next. Called in a thread beside the forward pass.

        Args:
            grammars: of this backend.
            masks: one row for each grammar, [B, ceil(vocab / 32)]: bit t % 32 of word t // 32 is 1 if token t is
                allowed: if `accept` takes it. (Where only one text may come, other ways to cut it into tokens may be
                left out.) The end-of-sequence tokens are allowed where the output may end, and alone once it is
                finished. Rows may hold anything before; ids that the tokenizer does not have are never allowed.
        """

    def hasten(self, mask: npt.NDArray[np.int32]) -> bool:
        """Leave only such tokens in a mask as bring its output nearer to its end; return whether any was taken away.

        Called shortly before `max_tokens`, so that an output ends whole where it would be cut. One that was hastened
        says "length" all the same.

        Args:
            mask: [ceil(vocab / 32)], of `fill_masks`. Changed in place; at least one token stays.
        """
        return False
