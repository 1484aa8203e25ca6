"""Conformance tests of the `GrammarBackend` and `Grammar` interfaces."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend

from .broken_grammars import BROKEN
from .declared import declared
from .grammar_case import EXAMPLES, SIMILAR, GrammarCase, GrammarExample, takes
from .grammar_formats import FORMATS, named_in
from .grammar_schemas import SCHEMAS, UNBOUNDED
from .schema_example import accepts

MAX_TOKENS = 40
"""Maximum number of tokens in a randomly generated output."""
MAX_HASTENED = 50
"""Maximum number of tokens until an output ends whose masks are hastened."""

OBJECT = '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}'


class GrammarBackendTests:
    """Conformance tests of a grammar backend.

    Derive from this class and override the fixture `backend` (and `examples`, if the backend has grammars of
    its own kind). Grammars that the backend rejects with a RequestError are skipped.
    """

    @pytest.fixture
    def backend(self) -> type[GrammarBackend]:
        """Return the class of the backend under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture backend")

    @pytest.fixture
    def examples(self, backend: type[GrammarBackend]) -> Sequence[GrammarExample]:
        """Return example grammars, with texts that match and texts that do not.

        By default, returns simple grammars of each known kind.
        """
        return [GrammarExample(*example) for example in declared(backend, "examples", EXAMPLES)]

    @pytest.fixture
    def unread(self, backend: type[GrammarBackend]) -> Collection[str] | None:
        """Return what the backend refuses.

        Keywords of JSON Schema (`not`), kinds of grammars (`ebnf`), and types of structural tags (`any_text`).
        By default, returns None: it is not known.
        """
        return declared(backend, "unread", None)

    @pytest.fixture
    def case(self, backend: type[GrammarBackend]) -> GrammarCase:
        """Return a case with the backend, built for a small vocabulary."""
        return GrammarCase.of(backend)

    def test_building_the_backend_starts_no_thread(self, backend: type[GrammarBackend]) -> None:
        """The process that builds a backend is forked, and a forked child has no other thread."""
        before = set(threading.enumerate())
        case = GrammarCase.of(backend)
        new = [thread.name for thread in threading.enumerate() if thread not in before]
        assert new == [], f"{type(case.backend).__name__} started threads when it was built: start them later"

    def test_matching_texts_are_accepted_to_their_end(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for text in example.fits:
                assert case.fits(grammar, text), (example.source, text)

    def test_texts_that_do_not_match_are_refused(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for text in example.misfits:
                assert not case.fits(grammar, text), (example.source, text)

    def test_the_mask_allows_exactly_the_accepted_tokens(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        """If only one text can follow, the mask may leave out other tokenizations of it."""
        for example, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=2):
                allowed = case.allowed(state)
                if state.is_finished():  # a finished grammar is never asked to accept the end
                    assert allowed == set(case.tokenizer.eos_token_ids), example.source
                    continue
                accepted = case.accepted(state)
                assert allowed <= accepted, example.source
                if left_out := accepted - allowed:  # only other tokenizations of a forced text may be masked
                    forced = case.text_of(state.forced())
                    assert all(forced.startswith(case.text_of([token])) for token in left_out), example.source

    def test_only_tokens_of_the_tokenizer_are_allowed(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=1):
                assert max(case.allowed(state)) < case.tokenizer.num_ids, example.source

    def test_texts_sampled_from_masks_match_the_grammar(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for seed in range(10):
                states, text = case.walk(grammar, seed, MAX_TOKENS)
                if text is not None:
                    assert case.allowed(states[-1]) >= {case.eos}
                    assert text not in example.misfits, example.source
                    assert example.kind != "regex" or re.fullmatch(example.source, text), example.source
                    assert example.kind != "json_schema" or may_be(example.source, json.loads(text))

    def test_schema_outputs_are_valid_objects(self, case: GrammarCase) -> None:
        grammar = compile_or_skip(case, GrammarSpec("json_schema", OBJECT))
        for seed in range(10):
            text = case.walk(grammar, seed, 60)[1]
            assert text is None or json.loads(text) in ({"a": True}, {"a": False})

    def test_a_copied_state_is_independent(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=2):
                before = case.allowed(state)
                for token in sorted(before - {case.eos})[:5]:
                    twin = state.copy()
                    assert case.allowed(twin) == before, example.source
                    twin.accept(token)
                    after = case.allowed(twin)
                    again = state.copy()
                    again.accept(token)
                    assert case.allowed(again) == after, example.source
                    assert case.allowed(state) == before, example.source

    def test_forced_tokens_are_the_only_continuation(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        tokenizer = case.tokenizer
        for example, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=3):
                forced = list(state.forced())
                if not forced:
                    continue
                assert all(takes(following, token) for following in [state.copy()] for token in forced)
                text = case.text_of(forced)
                for token in case.allowed(state):
                    assert token != case.eos or token == forced[0], example.source
                    written = tokenizer.token_bytes(token)
                    assert text.startswith(written) or written.startswith(text), (
                        example.source,
                        text,
                        written,
                    )

    def test_a_finished_output_allows_only_the_end(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for _, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=3):
                if state.is_finished():
                    assert list(state.forced()) == []
                    assert case.allowed(state) == set(case.tokenizer.eos_token_ids)

    @pytest.mark.parametrize("filled", [-1, 0])
    def test_batched_masks_equal_single_masks(
        self, case: GrammarCase, examples: Sequence[GrammarExample], filled: int
    ) -> None:
        """The old contents of the rows do not matter."""
        states = [
            state for _, grammar in compile_all(case, examples) for state in states_of(case, grammar, seeds=1)
        ]
        alone = [case.masks([state], filled)[0] for state in states]
        assert np.array_equal(case.masks(states, filled), np.stack(alone))
        assert np.array_equal(case.masks(states[::-1], filled), np.stack(alone[::-1]))

    def test_similar_grammars_are_not_confused(self, case: GrammarCase) -> None:
        """Grammars that differ only in case, white space or a letter's form have their own results."""
        asked = [(example, read(case, example.spec, False)) for example in SIMILAR]
        found = [(example, grammar) for example, grammar in asked if grammar is not None]
        if not found:
            pytest.skip("the backend refuses regular expressions and enums of JSON")
        for example, grammar in found:
            for text in (*example.fits, *example.misfits):
                fits = case.fits(grammar, text)
                answer = "accepts" if fits else "refuses"
                assert fits == (text in example.fits), f"the grammar {example.source!r} {answer} {text!r}"

    @pytest.mark.parametrize("is_prepared", [False, True])
    def test_accepted_schemas_allow_what_they_say(self, case: GrammarCase, is_prepared: bool) -> None:
        """Skips schemas that the backend refuses with a RequestError, because it cannot enforce them."""
        found = 0
        for example in SCHEMAS:
            if (grammar := read(case, example.spec, is_prepared)) is None:
                continue
            found += 1
            for value in example.fits:
                assert accepts(case, grammar, value), f"{example.schema} refuses {value!r}"
            for value in example.misfits:
                assert not accepts(case, grammar, value), f"{example.schema} accepts {value!r}"
        if not found:
            pytest.skip("the backend refuses all JSON schemas")

    @pytest.mark.parametrize("is_prepared", [False, True])
    def test_accepted_formats_allow_what_they_say(self, case: GrammarCase, is_prepared: bool) -> None:
        """Skips grammars that the backend refuses with a RequestError."""
        found = 0
        for example in FORMATS:
            if (grammar := read(case, example.spec, is_prepared)) is None:
                continue
            found += 1
            for text in example.fits:
                assert case.fits(grammar, text), f"{example.source} refuses {text!r}"
            for text in example.misfits:
                assert not case.fits(grammar, text), f"{example.source} accepts {text!r}"
        if not found:
            pytest.skip("the backend refuses all of these regular expressions, grammars and structural tags")

    def test_what_is_not_named_unread_is_read(
        self, case: GrammarCase, unread: Collection[str] | None
    ) -> None:
        if unread is None:
            pytest.skip("nothing says what the backend refuses: the fixture unread is None")
        schemas = [example.spec for example in SCHEMAS if not example.is_hard]
        for spec in (*schemas, *(example.spec for example in FORMATS)):
            if named_in(spec).isdisjoint(unread):
                reason = refusal(case, spec)
                assert reason is None, f"{spec.kind} {spec.source} is refused: {reason}"

    def test_a_prepared_grammar_compiles_to_the_same(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, _ in compile_all(case, examples):
            grammar = case.backend.compile(case.backend.prepare(example.spec))
            for text in (*example.fits, *example.misfits):
                assert case.fits(grammar, text) == (text in example.fits), (example.source, text)

    def test_a_broken_grammar_raises_a_request_error(self, case: GrammarCase) -> None:
        """Also raised for a schema that no value fits, because a mask allows at least one token."""
        for spec in BROKEN:
            reason = refusal(case, spec)
            assert reason is not None, f"{spec.kind} {spec.source[:200]} is read"
            assert reason, f"the error for {spec.kind} {spec.source[:200]} gives no reason"

    def test_grammars_compile_concurrently(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        specs = [example.spec for example, _ in compile_all(case, examples)] * 4
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(case.backend.compile, specs))
        expected = [case.allowed(grammar) for _, grammar in compile_all(case, examples)] * 4
        assert [case.allowed(grammar) for grammar in found] == expected

    def test_hasten_keeps_a_token_and_adds_none(
        self, case: GrammarCase, examples: Sequence[GrammarExample]
    ) -> None:
        for example, grammar in compile_all(case, examples):
            for state in states_of(case, grammar, seeds=1):
                [mask] = case.masks([state])
                hastened = mask.copy()
                changed = case.backend.hasten(hastened)
                assert hastened.any(), f"no token is left ({example.source})"
                assert not (hastened & ~mask).any(), f"a token came in ({example.source})"
                assert bool(changed) == bool((hastened != mask).any())

    def test_hastened_outputs_end_soon(self, case: GrammarCase) -> None:
        """Skips a backend that does not override `hasten`."""
        if type(case.backend).hasten is GrammarBackend.hasten:
            pytest.skip("the backend does not hasten")
        for schema in UNBOUNDED:
            grammar = compile_or_skip(case, GrammarSpec("json_schema", json.dumps(schema)))
            for seed in range(6):
                state = case.walk(grammar, seed, 5 * seed)[0][-1]
                left = case.num_hastened(state, seed, MAX_HASTENED + 1)
                assert left <= MAX_HASTENED, f"{schema} does not end within {MAX_HASTENED} tokens"


def may_be(schema: str, value: object) -> bool:
    """Return whether an example's schema allows a value. Reads only `enum` and the type boolean."""
    rules = json.loads(schema)
    return value in rules.get("enum", [value]) and (rules.get("type") != "boolean" or isinstance(value, bool))


def states_of(case: GrammarCase, grammar: Grammar, seeds: int) -> list[Grammar]:
    """Return the grammar's states along some randomly generated outputs, about 10 per output, evenly spread."""
    walks = [case.walk(grammar, seed, MAX_TOKENS)[0] for seed in range(seeds)]
    return [state for walk in walks for state in walk[:: 1 + len(walk) // 10]]


def compile_all(
    case: GrammarCase, examples: Sequence[GrammarExample]
) -> list[tuple[GrammarExample, Grammar]]:
    """Return the examples that the backend accepts, with their compiled grammars.

    Raises:
        AssertionError: the backend rejects all examples.
    """
    found: list[tuple[GrammarExample, Grammar]] = []
    reasons = []
    for example in examples:
        try:
            found.append((example, case.backend.compile(example.spec)))
        except RequestError as error:
            reasons.append(f"{example.kind}: {error}")
    assert found, f"the backend refuses all examples, so nothing is known of it ({'; '.join(reasons)})"
    return found


def read(case: GrammarCase, spec: GrammarSpec, is_prepared: bool) -> Grammar | None:
    """Compile a grammar, which may be prepared first; return None if the backend refuses it."""
    try:
        return case.backend.compile(case.backend.prepare(spec) if is_prepared else spec)
    except RequestError:
        return None


def refusal(case: GrammarCase, spec: GrammarSpec) -> str | None:
    """Return the reason for which the backend refuses a grammar; None if it compiles it."""
    try:
        case.backend.compile(spec)
    except RequestError as error:
        return str(error)
    return None


def compile_or_skip(case: GrammarCase, spec: GrammarSpec) -> Grammar:
    """Compile a grammar; if the backend rejects it, skip the test with the backend's reason."""
    try:
        return case.backend.compile(spec)
    except RequestError as error:
        pytest.skip(f"the backend refuses {spec.kind}: {error}")
