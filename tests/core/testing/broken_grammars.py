"""Grammar backends that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.testing import GrammarBackendTests
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend, LlguidanceGrammar


class MasksTooMuch(LlguidanceBackend):
    def fill_masks(self, grammars: Sequence[Grammar], masks: Any) -> None:
        super().fill_masks(grammars, masks)
        masks |= 2


class AllowsPaddedIds(LlguidanceBackend):
    def fill_masks(self, grammars: Sequence[Grammar], masks: Any) -> None:
        before = masks.copy()
        super().fill_masks(grammars, masks)
        masks[:, -1] |= before[:, -1]


class FillsFirstRowOnly(LlguidanceBackend):
    def fill_masks(self, grammars: Sequence[Grammar], masks: Any) -> None:
        super().fill_masks(grammars, masks)
        masks[1:] = masks[:1]


class AllowsEndAnywhere(LlguidanceBackend):
    def fill_masks(self, grammars: Sequence[Grammar], masks: Any) -> None:
        super().fill_masks(grammars, masks)
        for row in masks:
            self._allow(row, self._eos)


class SharesCopies(LlguidanceBackend):
    class made(LlguidanceGrammar):  # noqa: N801
        def copy(self) -> LlguidanceGrammar:
            twin = SharesCopies.made(self.matcher, self._eos_token_ids)
            twin._ended = self._ended
            return twin

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        return self.made(super().compile(spec).matcher, frozenset(self._eos))


class OfGrammar(LlguidanceBackend):
    """A backend whose grammars are of another class."""

    made: type[LlguidanceGrammar]

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        return self.made(super().compile(spec).matcher, frozenset(self._eos))


class Own(LlguidanceGrammar):
    def copy(self) -> LlguidanceGrammar:
        twin = type(self)(self.matcher.deep_copy(), self._eos_token_ids)
        twin._ended = self._ended
        return twin


class ForcesOneChoice(OfGrammar):
    class made(Own):  # noqa: N801
        def forced(self) -> Sequence[int]:
            allowed = np.unpackbits(
                np.frombuffer(self.matcher.compute_bitmask(), np.uint8), bitorder="little"
            )
            return [] if self.is_finished() else [int(allowed.argmax())]


class IgnoresNot(LlguidanceBackend):
    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        if spec.kind == "json_schema" and '"not"' in spec.source:
            spec = GrammarSpec(spec.kind, spec.source.replace('"not"', '"description "'))
        return super().compile(spec)


class AcceptsAnything(OfGrammar):
    class made(Own):  # noqa: N801
        def accept(self, token_id: int) -> None:
            try:
                super().accept(token_id)
            except ValueError:
                return


class NeverFinished(OfGrammar):
    class made(Own):  # noqa: N801
        def forced(self) -> Sequence[int]:
            return super().forced() or sorted(self._eos_token_ids) if self.is_finished() else []


class RefusesEverything(LlguidanceBackend):
    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        raise RequestError("no grammar is read")


class LeaksExceptions(LlguidanceBackend):
    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        try:
            return super().compile(spec)
        except RequestError as error:
            raise KeyError(spec.kind) from error


class FailsConcurrentCompiles(LlguidanceBackend):
    busy: threading.Lock

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        self.busy = getattr(self, "busy", threading.Lock())
        if not self.busy.acquire(blocking=False):
            raise RuntimeError("two at once")
        try:
            for _ in range(3):
                threading.Event().wait(0.002)
            return super().compile(spec)
        finally:
            self.busy.release()


class HastensToEmptyMask(LlguidanceBackend):
    def hasten(self, mask: Any) -> bool:
        mask[:] = 0
        return True


class AllowsAnythingEarly(LlguidanceBackend):
    """Masks nothing while more than 20 bytes of a regular expression are left."""

    class made(Own):  # noqa: N801
        left = 0

        def copy(self) -> LlguidanceGrammar:
            twin: Any = super().copy()
            twin.left = self.left
            return twin

        def accept(self, token_id: int) -> None:
            super().accept(token_id)
            self.left -= 1

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        grammar = self.made(super().compile(spec).matcher, frozenset(self._eos))
        grammar.left = len(spec.source) if spec.kind == "regex" else 0
        return grammar

    def fill_masks(self, grammars: Sequence[Grammar], masks: Any) -> None:
        super().fill_masks(grammars, masks)
        for grammar, row in zip(grammars, masks, strict=True):
            if isinstance(grammar, self.made) and grammar.left > 20:
                row[:-2] = -1


class MatchesPrefixes(LlguidanceBackend):
    """Reads a regular expression as the beginning of one."""

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        if spec.kind == "regex" and spec.source != "(":
            spec = GrammarSpec("regex", f"({spec.source})(no)?")
        return super().compile(spec)


class PreparesAnotherGrammar(LlguidanceBackend):
    def prepare(self, spec: GrammarSpec) -> GrammarSpec:
        return GrammarSpec("regex", "yes")


class ReadsSixteenChoices(LlguidanceBackend):
    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        if spec.kind == "regex":
            spec = GrammarSpec("regex", "|".join(spec.source.split("|")[:16]))
        return super().compile(spec)


class CachesInLowerCase(LlguidanceBackend):
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        super().__init__(tokenizer, vocab_size)
        self.known: dict[tuple[str, str], LlguidanceGrammar] = {}

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        key = spec.kind, spec.source.lower()
        if key not in self.known:
            self.known[key] = super().compile(spec)
        return self.known[key].copy()


class CompilesInAThread(LlguidanceBackend):
    """Has a thread from the beginning, which a forked child lacks."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        super().__init__(tokenizer, vocab_size)
        self.thread = ThreadPoolExecutor(1)
        self.thread.submit(len, "").result()

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        return self.thread.submit(super().compile, spec).result()


class RefusesPatterns(LlguidanceBackend):
    """Says that it reads all keywords, and refuses one."""

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        if '"pattern"' in spec.source:
            raise RequestError("it has a pattern")
        return super().compile(spec)


class RepeatsWithoutSeparators(LlguidanceBackend):
    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        return super().compile(
            GrammarSpec(spec.kind, spec.source.replace('"separator": ", "', '"separator": ""'))
        )


class ReadsMalformedSchemas(LlguidanceBackend):
    """Takes a schema that it does not understand for one of any JSON."""

    def compile(self, spec: GrammarSpec) -> LlguidanceGrammar:
        try:
            return super().compile(spec)
        except RequestError:
            if spec.kind == "json_schema":
                return super().compile(GrammarSpec(spec.kind, "{}"))
            raise


class NeverHastens(LlguidanceBackend):
    def hasten(self, mask: Any) -> bool:
        return False


class OfKind(GrammarBackendTests):
    kind: type[GrammarBackend]

    @pytest.fixture
    def backend(self) -> type[GrammarBackend]:
        return self.kind


def test_class(kind: type[GrammarBackend]) -> Any:
    """Return a test class for a backend."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (*LlguidanceBackend.__subclasses__(), *OfGrammar.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
