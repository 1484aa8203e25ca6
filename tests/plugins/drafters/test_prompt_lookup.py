"""Prompt lookup finds what a search through the whole text would find, and keeps the promises of its interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.drafter import Drafter
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.testing import DrafterTests
from llmfw.plugins.drafters.prompt_lookup import Lookup, PromptLookup

DEFAULT = (3, 16)
NUM_COMPARED = 16
"""Number of the latest earlier places that are compared."""


def searched(tokens: Sequence[int], limit: int, least: int, most: int) -> list[int]:
    """Return the draft, by looking at each place of the text."""
    end = len(tokens)
    places = [at for at in range(least, end) if tokens[at - least : at] == tokens[end - least :]]
    if end < least or not places:
        return []

    def length(at: int) -> int:
        matches = (n for n in range(1, min(at, most) + 1) if tokens[at - n : at] == tokens[end - n :])
        return max(matches)

    best = max(places[-NUM_COMPARED:], key=lambda at: (length(at), at))
    found = list(tokens)
    for i in range(limit):
        found.append(found[best + i])
    return found[end:]


@pytest.mark.parametrize("ngrams", [(1, 1), (2, 5), DEFAULT])
class TestPromptLookup(DrafterTests):
    @pytest.fixture
    def drafter(self, ngrams: tuple[int, int]) -> Drafter:
        return PromptLookup(PromptLookup.Options() if ngrams == DEFAULT else PromptLookup.Options(*ngrams))

    @pytest.fixture
    def reference(self, ngrams: tuple[int, int]) -> Callable[[Sequence[int], int], Sequence[int]]:
        least, most = ngrams
        return partial(searched, least=least, most=most)


@given(
    tokens=st.lists(st.integers(0, 3), max_size=120),
    limit=st.integers(1, 9),
    least=st.integers(1, 4),
    more=st.integers(0, 4),
    cuts=st.lists(st.integers(0, 120)),
)
def test_drafts_equal_a_full_search(
    tokens: list[int], limit: int, least: int, more: int, cuts: list[int]
) -> None:
    lookup, ends = Lookup(least, least + more), sorted({min(cut, len(tokens)) for cut in cuts})
    for start, end in zip([0, *ends], [*ends, len(tokens)], strict=True):
        lookup.extend(tokens[start:end])
        lookup.draft(limit)
    assert list(lookup.draft(limit)) == searched(tokens, limit, least, least + more)


@pytest.mark.parametrize(
    ("tokens", "drafted"),
    [
        ([1, 2, 3, 9, 8, 7, 1, 2, 3], [9, 8, 7, 1]),
        ([1, 2, 3, 4, 5, 5, 1, 2, 3, 6, 5, 5, 9, 2, 3, 4, 1, 2, 3], [6, 5, 5, 9]),  # the latest of equals
        ([0, 1, 2, 3, 4, 5, 5, 1, 2, 3, 6, 5, 0, 1, 2, 3], [4, 5, 5, 1]),  # the longest match
        ([7, 1, 2, 1, 2, 1, 2], [1, 2, 1, 2]),  # a loop goes on
        ([5, 5, 5, 5], [5, 5, 5, 5]),
        ([1, 2, 3, 4, 2, 3], []),
        ([1, 2], []),
    ],
)
def test_the_previous_continuation_is_drafted(tokens: list[int], drafted: list[int]) -> None:
    lookup = Lookup(3, 16)
    lookup.extend(tokens)
    assert list(lookup.draft(4)) == drafted


def test_inverted_ngram_bounds_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"max_ngram is 2; it must be at least drafter\.min_ngram, which is 3"
    ):
        PromptLookup(PromptLookup.Options(max_ngram=2))


def test_its_options_can_be_set_as_text() -> None:
    entry = load_plugins().registry.find("drafter", "prompt-lookup")
    options = entry.build_options({"drafter.min_ngram": "2", "drafter.max_ngram": "9"})
    assert (options.min_ngram, options.max_ngram) == (2, 9)
    with pytest.raises(ConfigError, match="min_ngram"):
        entry.build_options({"drafter.min_ngram": "0"})
