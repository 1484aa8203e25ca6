"""The states of one constrained output, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from llmfw.core.base.request import Request, SamplingParams, Thinking
from llmfw.core.schedule.constraint import Constraint, constraint_of

from ...doubles.trie_grammar import TrieGrammar, tokens_of

EOS, BEGIN, MIDDLE, END, LAST = 1, 2, 3, 4, 5
VOCAB_SIZE = 300
THINK = Thinking(begin=(BEGIN,), end=(END,))


def constraint(*texts: str, thinking: Thinking | None = None) -> Constraint:
    request = Request(
        id="a", prompt=[9], sampling=SamplingParams(max_tokens=9), eos_token_ids=(EOS,), thinking=thinking
    )
    grammar = TrieGrammar(frozenset(map(tokens_of, texts)), (EOS,)) if texts else None
    found = constraint_of(request, grammar)
    assert found is not None
    return found


def allowed(state: Constraint) -> set[int]:
    if not state.has_mask:
        return set(range(VOCAB_SIZE))
    words = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.int32)
    if state.grammar_to_ask is not None:
        assert isinstance(state.grammar_to_ask, TrieGrammar)
        for token in state.grammar_to_ask.allowed():
            words.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
    state.edit_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits[:VOCAB_SIZE]).tolist())


def follow(state: Constraint, tokens: Sequence[int]) -> None:
    for token in tokens:
        assert token in allowed(state)
        state.accept(token)


def test_forced_tokens_are_queued_then_the_end() -> None:
    state = constraint("abc", "abd")
    assert tuple(state.forced) == tokens_of("ab")
    follow(state, tokens_of("ab"))
    assert allowed(state) == set(tokens_of("cd"))
    follow(state, tokens_of("d"))
    assert tuple(state.forced) == (EOS,)
    follow(state, [EOS])
    assert state.has_ended
    assert not state.has_mask


def test_the_first_token_opens_thinking_or_the_answer() -> None:
    assert allowed(constraint("ab", "cd", thinking=THINK)) == {BEGIN, *tokens_of("ac")}
    state = constraint("ab", "cd", thinking=THINK)
    follow(state, tokens_of("a"))
    assert allowed(state) == set(tokens_of("b"))


def test_the_grammar_starts_after_the_thinking() -> None:
    """The output cannot end within the thinking."""
    state = constraint("ab", thinking=THINK)
    follow(state, [BEGIN])
    assert allowed(state) == set(range(VOCAB_SIZE)) - {EOS}
    follow(state, [50, 60, BEGIN, 70, END])
    assert tuple(state.forced) == tokens_of("ab")


def test_markers_of_several_tokens_are_followed() -> None:
    state = constraint("ab", thinking=Thinking(begin=(BEGIN, MIDDLE, LAST), end=(END, LAST)))
    follow(state, [BEGIN])
    assert tuple(state.forced) == (MIDDLE, LAST)
    follow(state, [MIDDLE, LAST, 50, END, 51, LAST, END, END, LAST])
    assert allowed(state) == set(tokens_of("a"))


def test_an_incomplete_begin_marker_is_no_thinking() -> None:
    state = constraint(thinking=Thinking(begin=(BEGIN, MIDDLE), end=(END,), budget=0))
    follow(state, [BEGIN, 50, 60, 70, EOS, 80])
    assert not state.has_mask


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_spent_budget_forces_the_thinking_s_end(budget: int) -> None:
    state = constraint(thinking=Thinking(end=(END, LAST), is_open=True, budget=budget))
    follow(state, [50] * budget)
    assert tuple(state.forced) == (END, LAST)
    follow(state, [END, LAST])
    assert not state.has_mask


def test_a_begun_end_marker_is_completed() -> None:
    state = constraint("ab", thinking=Thinking(end=(END, LAST), is_open=True, budget=3))
    follow(state, [50, 51, END])
    assert tuple(state.forced) == (LAST,)
    follow(state, [LAST])
    assert tuple(state.forced) == tokens_of("ab")


def test_an_end_within_the_budget_counts() -> None:
    state = constraint(thinking=Thinking(end=(END,), is_open=True, budget=2))
    follow(state, [50, END, 51, 52, 53])
    assert not state.has_mask


def test_only_token_dependent_masks_wait() -> None:
    state = constraint(thinking=Thinking(begin=(BEGIN,), end=(END,), budget=2))
    waits = []
    for token in (BEGIN, 50, 51, END, 52):
        waits.append(state.needs_next_token)
        state.accept(token)
    assert waits == [False, False, True, True, False]
    assert constraint("ab").needs_next_token


def test_unconstrained_requests_have_no_constraint() -> None:
    request = Request(id="a", prompt=[9], sampling=SamplingParams(max_tokens=9), thinking=THINK)
    assert constraint_of(request, None) is None


def test_disallowed_tokens_and_missing_masks_raise() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        constraint("ab", "cd").accept(99)
    state = constraint("ab", "cd")
    state.fail("no mask")
    with pytest.raises(ValueError, match="no mask"):
        state.accept(tokens_of("a")[0])


SPACED = Thinking(begin=(BEGIN,), end=(END,), space=(LAST, 7))


def test_one_space_token_may_follow_the_thinking() -> None:
    for space in ((), (LAST,), (7,)):
        state = constraint("abc", "abd", thinking=SPACED)
        follow(state, [BEGIN, 99, END])
        assert allowed(state) == {LAST, 7, *tokens_of("a")}
        follow(state, [*space, *tokens_of("ab")])
        assert allowed(state) == set(tokens_of("cd"))
        follow(state, [*tokens_of("c"), EOS])
        assert state.has_ended


def test_space_needs_thinking_and_a_grammar() -> None:
    """A spent budget does not matter."""
    state = constraint("ab", thinking=Thinking(end=(END,), is_open=True, budget=0, space=(7,)))
    follow(state, [END, 7, *tokens_of("ab"), EOS])
    assert 7 not in allowed(constraint("ab", thinking=SPACED))
    free = constraint(thinking=Thinking(end=(END,), is_open=True, budget=0, space=(7,)))
    follow(free, [END])
    assert not free.has_mask
