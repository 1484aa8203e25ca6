"""Patterns end a text where `re` finds the first match, whatever way the text comes."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.text.stop_patterns import MAX_STATES, PatternError, StopAutomaton, StopPatterns

PATTERNS = (
    r"ab+c",
    r"(?:a|bb)c",
    r"[^a]b{2,3}",
    r"(?i)AB",
    r"a.c",
    r"(?s:a.)b?c",
    r"a(?:b?c?){2}a",
    r"\w\s\d",
    r"(?:ab)*?c",
)
texts = st.text("abcB 1\n", max_size=14)
chosen = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique=True)


def ended(patterns: list[str], pieces: list[str], keep: bool = False) -> tuple[str, str | None]:
    search = StopPatterns(StopAutomaton([(each, each) for each in patterns]), keep=keep)
    out = ""
    for piece in pieces:
        text, label = search.feed(piece)
        out += text
        if label is not None:
            return out, label
    return out + search.finish(), None


def reference(patterns: list[str], text: str) -> tuple[str, str | None]:
    """Return the text before the longest of the matches that end first."""
    for end in range(len(text) + 1):
        for start in range(end):
            for pattern in patterns:
                if re.fullmatch(pattern, text[start:end]):
                    return text[:start], pattern
    return text, None


@given(chosen, texts, st.lists(st.integers(0, 100)))
def test_the_first_complete_match_ends_the_text(patterns: list[str], text: str, places: list[int]) -> None:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    expected, label = reference(patterns, text)
    found, found_label = ended(patterns, pieces)
    assert (found, found_label is None) == (expected, label is None)


@given(chosen, texts)
def test_only_possible_matches_are_held_back(patterns: list[str], text: str) -> None:
    search = StopPatterns(StopAutomaton([(each, each) for each in patterns]))
    sent, label = search.feed(text)
    if label is None and sent != text:
        rest = text[len(sent) :]
        continuations = ("".join(each) for n in range(8) for each in itertools.product("abc 1", repeat=n))
        assert any(re.fullmatch(p, rest + more) for more in continuations for p in patterns)


def test_the_match_can_be_included() -> None:
    assert ended([r"\d+;"], ["a1", "2;b"], keep=True) == ("a12;", r"\d+;")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a*", "empty"),
        ("(?:)", "empty"),
        ("(){1000000000}", "empty"),
        ("(", "cannot read"),
        ("a$", "assertion"),
        (r"\bend", "assertion"),
        ("(?=a)b", "assertion"),
        (r"(a)\1", "back reference"),
        ("(?>a)b", "atomic"),
        ("a++b", "possessive"),
        ("(?i)[a-\uffff]", "range"),
        ("a{100000}", "states"),
        ("(((a{99}){99}){99}){99}", "states"),
    ],
)
def test_patterns_that_cannot_stop_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=why):
        StopAutomaton([(pattern, pattern)])


def test_backtracking_heavy_patterns_stay_cheap() -> None:
    """Counts the states that are visited, which bound the work for a character."""
    automaton = StopAutomaton([("(?:a|a)*(?:a?){100}b", "")])
    visited = 0

    def after(states: int, inner=automaton.after) -> int:
        nonlocal visited
        visited += states.bit_count()
        return inner(states)

    automaton.after = after  # type: ignore[method-assign]
    search = StopPatterns(automaton)
    search.feed("a" * 1000)
    assert visited <= 1000 * MAX_STATES
