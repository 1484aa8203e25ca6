"""A translated pattern matches what Python's own finds, and nothing else."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.plugins.grammar_llguidance.pattern import PatternError, all_but, translate

from .walking import compiled, fits, walk

PATTERNS = [
    "^a",
    "b$",
    "^(?:a|bc)*$",
    "a|^b|c$",
    "(^x$)|(^y+$)",
    r"[^\W\d_]",
    r"^\x41\/\-[\]\\^]",
    "a{2,}b{,3}",
    "^$",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_translated_patterns_match_only_python_s_matches(pattern: str) -> None:
    grammar = compiled("regex", translate(pattern))
    texts = [walk(grammar, seed, limit=90) for seed in range(10)]
    assert any(text is not None for text in texts)
    assert all(re.search(pattern, text) for text in texts if text is not None)


@pytest.mark.parametrize("pattern", ['^[^"]$', r"^[^\\]$", r"^[\x00-!#-z]$", r"^[^\s\"]$"])
def test_a_class_has_only_its_own_characters(pattern: str) -> None:
    """llguidance takes a class of all control characters for one with quotes and backslashes."""
    grammar = compiled("json_schema", {"type": "string", "pattern": pattern})
    for text in ('"', "\\", "a", "\n", "é"):
        found = re.search(pattern, text) is not None
        assert fits(grammar, json.dumps(text, ensure_ascii=False)) == found, text


@given(st.lists(st.text("ab\n$ü", max_size=4), min_size=1, max_size=4), st.text("ab\n$ü", max_size=5))
def test_negated_words_match_everything_else(words: list[str], text: str) -> None:
    assert bool(re.search(all_but(words), text)) == (text not in words)


@given(st.text("ab", max_size=4), st.sampled_from(["^a", "b$", "a|^b$", "^(a|b){2}$", "(^a)|(b$)"]))
def test_classless_patterns_match_the_same_strings(text: str, pattern: str) -> None:
    # What is written for llguidance is, for such patterns, also a pattern of Python's.
    assert bool(re.search(translate(pattern), text)) == bool(re.search(pattern, text))


@pytest.mark.parametrize(
    "pattern", ["(", "a(?!b)", "(?i)a", "(a)\\1", "\\Bx", "x{99999999999}", "\ud800", "x" * 30_000]
)
def test_unsupported_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        translate(pattern)


def test_digits_are_those_of_this_python() -> None:
    grammar = compiled("regex", translate(r"^\d\Z", exact=True).strip("^$"))
    texts = [walk(grammar, seed, limit=20) for seed in range(40)]
    assert any(text and not text.isascii() for text in texts)
    assert all(re.fullmatch(r"\d", text) for text in texts if text is not None)
