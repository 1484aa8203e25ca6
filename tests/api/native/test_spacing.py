"""The events of a /generate stream, each of which repeats all tokens, stay within a few sizes of the last one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.native.spacing import FREE_BYTES, REPEATS, EventSpacing


def sent_sizes(fixed: int, per_token: int, num_tokens: int) -> list[int]:
    """Return the sizes of the events of a choice whose event with N tokens has `fixed` + N * `per_token` bytes."""
    spacing, sizes = EventSpacing(), []
    for num in range(1, num_tokens + 1):
        text = SimpleNamespace(token_ids=[0] * num, finish_reason="length" if num == num_tokens else None)
        choice: Any = SimpleNamespace(index=0, text=text)
        if spacing.is_due(choice):
            sizes.append(fixed + num * per_token)
            spacing.count(choice, sizes[-1])
    return sizes


def test_usual_output_is_sent_token_by_token() -> None:
    assert len(sent_sizes(300, 30, 1000)) == 1000


@given(st.integers(0, 10**7), st.integers(1, 10**5), st.integers(1, 3000))
def test_all_events_together_are_limited(fixed: int, per_token: int, num_tokens: int) -> None:
    sizes = sent_sizes(fixed, per_token, num_tokens)
    last = fixed + num_tokens * per_token
    assert sizes[-1] == last
    assert sum(sizes) <= FREE_BYTES + (REPEATS + 1) * last


def test_large_events_never_stop_for_long() -> None:
    sizes = sent_sizes(0, 4000, 3000)
    tokens = [size // 4000 for size in sizes]
    gaps = [(later - earlier) / later for earlier, later in itertools.pairwise(tokens)]
    assert max(gap for gap, later in zip(gaps, tokens[1:], strict=True) if later > 500) < 2 / REPEATS
