"""The table of errors with keys and values in fp8 says what was found."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with benchmark_script("kv_dtype") as (module,):
        yield module


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [([1, 2, 3], [1, 2, 3], 3), ([1, 2, 3], [1, 9, 3], 1), ([1, 2, 3], [1, 2], 2), ([1], [2, 1], 0)],
)
def test_tokens_agree_up_to_the_first_difference(script, expected, found, same):
    assert script.agreed(expected, found) == same


def test_each_side_is_compared_with_the_first(script):
    first = ([(-1.0, 5), (-2.0, 6)], [[1, 2, 3, 4], [5, 6]])
    other = ([(-1.5, 5), (-2.0, 7)], [[1, 2, 9, 4], [5, 6]])
    figures = {"bfloat16": script.compare(first, first), "fp8_e4m3": script.compare(first, other)}
    heading, *_, plain, small = script.table(figures)
    assert heading.startswith("The demo model over 2 tokens, and 2 replies of up to 64 tokens")
    assert plain == "| bfloat16 | 4.4817 | – | – | – | – | – |"
    assert small == "| fp8_e4m3 | 5.7546 | 0.2500 | 0.5000 | 50.0% | 50.0% | 66.7% |"
