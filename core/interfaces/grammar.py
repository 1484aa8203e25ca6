"""The interface of a grammar backend, which turns a grammar of the output into the tokens that may come next.

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
        """Return an independent copy in the same state. Must be cheap: a compiled grammar is copied for each request."""

    @abstractmethod
    def accept(self, token_id: int) -> None:
        """Advance to the state after this token.

        Raises ValueError if the token is not allowed, GrammarCostError if the grammar is too complex to continue.

        Receives the end-of-sequence token, too, unless the grammar is finished: a grammar that cannot continue raises
        here.
        """

    @abstractmethod
    def forced(self) -> Sequence[int]:
        """Return the next tokens if the grammar allows only one continuation, in the model's own tokenisation; often
        none."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Return whether nothing but the end of the output may follow."""


class GrammarBackend(ABC):
    """Compiles grammars for one vocabulary.

    Args:
        tokenizer: the model's tokenizer. Its `eos_token_ids` end an output.
        vocab_size: width of the model's logits, which may exceed the number of the tokenizer's tokens.
        options: an instance of its `Options`, passed by this name, only to a backend that has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o grammar.key=value`. A backend with options overrides this."""

    @abstractmethod
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None: ...

    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        """Return a spec that `compile` turns into the same grammar with less work, of any kind that `compile` knows.

        Called in a separate process, once for each grammar, before the engine's `compile`. Put work here that holds the
        interpreter's lock or recurses on a client's input. The default returns the spec unchanged.

        Raises:
            RequestError: as in `compile`.
        """
        return spec

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> Grammar:
        """Return a grammar in its initial state.

        Takes specs as clients write them, and specs from `prepare`. The server calls it first in a process that is forked
        from the one that built the backend, and that may crash or be killed. Then it calls it in several threads of the
        engine at once, so it must not hold the interpreter's lock for long.

        Raises:
            RequestError: the spec is broken, or asks for something that this backend cannot enforce; says what.
        """

    @abstractmethod
    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        """Write, for each grammar, which tokens may come next. Called in a thread, during the forward pass.

        Args:
            grammars: grammars of this backend.
            masks: one row per grammar, [B, ceil(vocab / 32)]: bit t % 32 of word t // 32 is 1 if token t is allowed, that
                is, if `accept` takes it. (If only one text may come next, the mask may omit other tokenisations of it.)
                The end-of-sequence tokens are allowed if the output may end, and are the only allowed ones once it is
                finished. Rows may hold anything before the call; ids that the tokenizer lacks are never allowed.
        """

    def hasten(self, mask: npt.NDArray[np.int32]) -> bool:
        """Leave only tokens in a mask that bring the output nearer to its end; return whether any was removed.

        Called shortly before `max_tokens`, so that the output is complete instead of cut. The finish reason of a hastened
        output is still "length".

        Args:
            mask: [ceil(vocab / 32)], from `fill_masks`. Changed in place; at least one token stays.
        """
        return False
