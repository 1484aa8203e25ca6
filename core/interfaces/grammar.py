"""The interface of a grammar backend, which computes the tokens that a grammar allows next in an output.

The kinds of `GrammarSpec` that a backend may receive:

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
                     "at_least_one": BOOL, "stop_after_first": BOOL}: free text, in which a trigger starts a
                     tag
                    {"type": "tags_with_separator", "tags": [TAG, ...], "separator": TEXT,
                     "at_least_one": BOOL, "stop_after_first": BOOL}

xgrammar introduced the format of `structural_tag`. If a text in a format is or contains the text of a special
token, this text stands for the token itself.
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
        """Return an independent copy in the same state.

        Must be cheap: a compiled grammar is copied for each request.
        """

    @abstractmethod
    def accept(self, token_id: int) -> None:
        """Advance to the state after this token.

        Also called with the end-of-sequence token, unless the grammar is finished. A grammar that cannot
        continue raises here.

        Raises:
            ValueError: the token is not allowed.
            GrammarCostError: the grammar is too complex to continue.
        """

    @abstractmethod
    def forced(self) -> Sequence[int]:
        """Return the tokens of the only possible continuation; empty if the grammar allows several.

        The tokens must be those that the model's tokenizer gives for the continuation's text.
        """

    @abstractmethod
    def is_finished(self) -> bool:
        """Return whether only the end of the output may follow."""


class GrammarBackend(ABC):
    """Compiles grammars for one vocabulary.

    Args:
        tokenizer: the model's tokenizer. Its `eos_token_ids` end an output.
        vocab_size: width of the model's logits, which may exceed the number of the tokenizer's tokens.
        options: an instance of the backend's `Options`, passed by keyword, only to a backend that has
            options.

    Raises:
        RequestError: no output with this tokenizer can be constrained. Requests with a grammar are refused
            with this message.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o grammar.key=value`. A backend with options overrides this."""

    @abstractmethod
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None: ...

    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        """Return an equivalent spec that takes `compile` less work.

        The returned spec may be of a kind that only this backend knows. By default, returns the spec
        unchanged.

        Called in a separate process, once for each grammar, before `compile` is called in the engine. Put
        work here that holds the interpreter lock, or that recurses on a client's input.

        Raises:
            RequestError: as in `compile`.
        """
        return spec

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> Grammar:
        """Return a grammar in its initial state.

        Receives specs as clients write them, and specs from `prepare`. The server first calls this method in
        a child process, which may crash or be killed. (The backend was built before the child was forked.)
        Then the engine calls this method in several threads at once, so a call must not hold the interpreter
        lock for long.

        Raises:
            RequestError: the spec is invalid, or this backend cannot enforce it; the message gives the
                reason.
        """

    @abstractmethod
    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        """Write the mask of the tokens that each grammar allows next.

        May be called in another thread, while the model computes the step.

        Args:
            grammars: grammars of this backend.
            masks: one row per grammar, [B, ceil(vocab / 32)]: bit t % 32 of word t // 32 is 1 if token t is
                allowed, that is, if `accept` takes it. If only one text may come next, the mask may allow
                only one tokenization of that text. The end-of-sequence tokens are allowed if the output may
                end; once the grammar is finished, no other token is. Rows may hold anything before the call.
                Ids that the tokenizer lacks are never allowed. At least one token is: a grammar that cannot
                continue allows the end-of-sequence tokens, and raises when it accepts one.
        """

    def hasten(self, mask: npt.NDArray[np.int32]) -> bool:
        """Restrict a mask to tokens that bring the output closer to its end; return whether the mask changed.

        Called shortly before `max_tokens`, so that the output becomes complete instead of being truncated.
        The finish reason of such an output is still "length". By default, changes nothing.

        Args:
            mask: a row that `fill_masks` has filled: [ceil(vocab / 32)]. Changed in place; at least one token
                must stay.
        """
        return False
