"""The grammar backend `llguidance`: compiles a `GrammarSpec` with llguidance, and computes masks.

llguidance computes masks in its own threads, without the GIL. Does not depend on requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax
from llguidance.numpy import fill_next_token_bitmask, fill_next_token_bitmask_par

from llmfw.core import Grammar, GrammarBackend, GrammarSpec
from llmfw.core.base.errors import GrammarCostError, RequestError

from .closing import Closing
from .document import MAX_BYTES
from .json_text import OPTIONS
from .schema_check import prepare
from .structural_tag import regex_terminal, to_lark

if TYPE_CHECKING:
    import numpy.typing as npt

    from llmfw.core import Tokenizer

PREPARED = "llguidance:"
"""Prefix of the kind of a spec that is already in llguidance's format."""
_UNREAD = (
    "this model's tokenizer is neither byte-level nor has it a byte fallback, so its tokens cannot be constrained; send the "
    "request without structured output, or let the operator choose a backend that knows the tokenizer with --grammar"
)
_PROBES = ("a b", ' {"a": 1}')
MAX_ERROR = 400  # most characters of llguidance's message that are shown to clients


class LlguidanceGrammar(Grammar):
    """The state of one output that a grammar constrains.

    Args:
        matcher: llguidance's matcher; the grammar takes ownership.
        eos_token_ids: tokens that end the output; the matcher does not consume them.
    """

    def __init__(self, matcher: LLMatcher, eos_token_ids: frozenset[int]) -> None:
        self.matcher = matcher
        self._eos_token_ids = eos_token_ids
        self._ended = False

    def copy(self) -> LlguidanceGrammar:
        copied = LlguidanceGrammar(self.matcher.deep_copy(), self._eos_token_ids)
        copied._ended = self._ended
        return copied

    def accept(self, token_id: int) -> None:
        if self._ended:
            raise ValueError(f"token {token_id} comes after the end of the output")
        self._check_matcher()
        if token_id in self._eos_token_ids and (self.matcher.is_accepting() or self._allows(token_id)):
            self._ended = True
            return
        if self.matcher.validate_tokens([token_id]) != 1 or not self.matcher.consume_token(token_id):
            self._check_matcher()  # the matcher may have given up at this token
            raise ValueError(f"the grammar does not allow token {token_id} here")

    def _check_matcher(self) -> None:
        """Raise GrammarCostError if the matcher has given up."""
        if self.matcher.is_error():
            reason = self.matcher.get_error()
            if "NoExtensionBias" in reason:
                raise GrammarCostError("the grammar allows no text; loosen it")
            raise GrammarCostError(f"the grammar is too complex: {_explained(reason)}")

    def _allows(self, token_id: int) -> bool:
        """Return whether the mask allows an end token.

        An end token may also be the last marker of a grammar's text (such as gpt-oss's `<|call|>`).
        llguidance then allows it in the mask, but does not consume it.
        """
        return bool(self.matcher.compute_bitmask()[token_id // 8] >> token_id % 8 & 1)

    def forced(self) -> Sequence[int]:
        return [] if self._ended else self.matcher.compute_ff_tokens()

    def is_finished(self) -> bool:
        return self._ended or (self.matcher.is_stopped() and not self.matcher.is_error())


def _read(tokenizer: Tokenizer, vocab_size: int, eos: list[int]) -> LLTokenizer:
    """Return llguidance's form of a tokenizer.

    Raises:
        RequestError: llguidance cannot read this tokenizer, or decodes its tokens to other texts. llguidance
            supports byte-level tokenizers, and tokenizers with a byte fallback.
    """
    try:
        found = LLTokenizer(tokenizer.to_json(), n_vocab=vocab_size, eos_token=eos)
    except ValueError as error:
        raise RequestError(_UNREAD) from error
    for text in _PROBES:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        if found.decode_bytes(tokens) != b"".join(map(tokenizer.token_bytes, tokens)):
            raise RequestError(_UNREAD)
    return found


class LlguidanceBackend(GrammarBackend):
    """Compiles grammars with llguidance.

    If a grammar becomes too complex during an output, its mask allows only the end tokens. Accepting an end
    token then raises GrammarCostError, because the truncated output does not match the grammar.
    """

    conformance: ClassVar = {"unread": ()}

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """Raise RequestError if llguidance cannot read this tokenizer, or decodes tokens to other texts."""
        self._vocab_size = vocab_size
        self._eos = list(tokenizer.eos_token_ids)
        if not self._eos:
            raise RequestError(
                "the model names no end-of-sequence token, without which no grammar could end an output; send the request "
                "without structured output"
            )
        self._tokenizer = _read(tokenizer, vocab_size, self._eos)
        self._special = {
            text: token
            for text, token in tokenizer.added_tokens().items()
            if self._tokenizer.is_special_token(token)
        }
        self._closing = Closing(tokenizer, vocab_size, self._eos)
        self._executor: LLExecutor | None = None  # created when needed: no threads may exist at a fork
        # A grammar that exceeds a limit is refused, which takes well under a second.
        self._limits = LLParserLimits(
            max_items_in_row=2000,
            initial_lexer_fuel=5_000_000,
            step_lexer_fuel=200_000,
            max_lexer_states=50_000,
            step_max_items=50000,
            verbose_errors=False,
        )

    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        """Return the spec in llguidance's format, which native code parses without the GIL.

        Raises:
            RequestError: the grammar is malformed, too large or not supported.
        """
        if spec.kind.startswith(PREPARED):
            return spec
        if len(spec.source) > MAX_BYTES:
            raise RequestError(f"the grammar has {len(spec.source)} characters; the limit is {MAX_BYTES}")
        try:
            return GrammarSpec(PREPARED + spec.kind, self._grammar(spec))
        except ValueError as error:  # from llguidance, for a schema that is nested too deeply
            raise RequestError(
                f"the {_SPOKEN[spec.kind]} cannot be used: {_explained(str(error))}"
            ) from error

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        prepared = self.prepare(spec)
        matcher = LLMatcher(self._tokenizer, prepared.source, log_level=0, limits=self._limits)
        if matcher.is_error():
            spoken = _SPOKEN[spec.kind.removeprefix(PREPARED)]
            raise RequestError(f"the {spoken} cannot be used: {_explained(matcher.get_error())}")
        return LlguidanceGrammar(matcher, frozenset(self._eos))

    def fill_masks(self, grammars: Sequence[Grammar], masks: npt.NDArray[np.int32]) -> None:
        ours = [cast("LlguidanceGrammar", grammar) for grammar in grammars]
        masks[:] = 0
        running = [(grammar.matcher, row) for row, grammar in enumerate(ours) if not grammar._ended]
        if len(running) == 1:  # threads would cost more than they save
            fill_next_token_bitmask(running[0][0], masks, running[0][1])
        elif running:
            self._executor = self._executor or LLExecutor()
            fill_next_token_bitmask_par(self._executor, running, masks)
        for row, grammar in enumerate(ours):
            if grammar.is_finished() or grammar.matcher.is_error():
                masks[row] = 0
                self._allow(masks[row], self._eos)

    def hasten(self, mask: npt.NDArray[np.int32]) -> bool:
        return self._closing.narrow(mask)

    def _allow(self, row: npt.NDArray[np.int32], token_ids: Sequence[int]) -> None:
        words = row.view(np.uint32)
        for token in token_ids:
            words[token // 32] |= np.uint32(1 << (token % 32))

    def _grammar(self, spec: GrammarSpec) -> str:
        """Return a spec's source in llguidance's format."""
        if spec.kind == "json_schema":
            return LLMatcher.grammar_from_json_schema(json.dumps(prepare(spec.source)), overrides=OPTIONS)
        if spec.kind == "regex":
            return LLMatcher.grammar_from_lark(f"start: {regex_terminal(spec.source)}")
        if spec.kind == "ebnf":
            return LLMatcher.grammar_from_lark(lark_of(spec.source))
        if spec.kind == "structural_tag":
            return LLMatcher.grammar_from_lark(to_lark(spec.source, self._special))
        raise RequestError(f"there is no kind of grammar {spec.kind!r}; kinds are {', '.join(_SPOKEN)}")


_SPOKEN = {
    "json_schema": "JSON schema",
    "regex": "regular expression",
    "ebnf": "grammar",
    "structural_tag": "structural tag",
}


_TEMPERATURE = re.compile(
    r"^[ \t]*[?!]?(\w+)[^\[\]\n:]*\[[^\]\n]*\btemperature\b[^\]\n]*\][ \t]*:", re.MULTILINE
)
"""Matches the attributes of a rule in Lark syntax that has a temperature."""


def lark_of(grammar: str) -> str:
    """Return a grammar in Lark syntax, after translating it if it is llama.cpp's GBNF (`root ::= …`).

    Raises:
        RequestError: the grammar is invalid GBNF, or one of its rules has a temperature.
    """
    if rule := _TEMPERATURE.search(grammar):
        raise RequestError(
            f"the rule {rule[1]:.40} has a temperature, which is not honored; leave it out, or set that of the request"
        )
    if "::=" not in grammar or is_lark_syntax(grammar):
        return grammar
    try:
        return gbnf_to_lark(grammar)
    except RecursionError as error:
        raise RequestError("the grammar is nested too deeply to be read as GBNF; nest it less") from error
    except Exception as error:  # the translator may raise anything on invalid input
        raise RequestError(f"the grammar is not GBNF: {error}") from error


# Replacements for messages of llguidance that name parts of the rewritten schema, or (panics) its own source
# files.
_EXPLAINED = {
    "panic: ": "the library that compiles it failed on it; write it in another way",
    "recursion limit exceeded": "it is nested too deeply",
    "circular references with sibling keys": "a '$ref' that leads back to itself is combined with other keywords, "
    "directly or in an 'allOf' or 'anyOf'",
    "schema too large": "its 'allOf', 'anyOf', 'oneOf' and 'if' have too many combinations",
    "Schema intersection stack level exceeded": "its 'allOf' and '$ref' are combined too deeply",
}


def _explained(message: str) -> str:
    message = message.replace("<non-verbose/>", "").strip()
    return next((text for said, text in _EXPLAINED.items() if said in message), _shortened(message))


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_ERROR else f"{message[:MAX_ERROR]}…"
