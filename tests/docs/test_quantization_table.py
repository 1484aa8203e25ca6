"""The tables of what quantized weights lose say what was found."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with benchmark_script("quantization") as (module,):
        yield module


def figures(kl: float, same: float) -> dict[str, float]:
    return {
        "weight_mb": 5.84,
        "tokens": 4018,
        "perplexity": 1.27183,
        "mean_kl": kl,
        "p99_kl": 2 * kl,
        "max_kl": 3 * kl,
        "same_top": same,
    }


def test_others_are_compared_with_the_first_line(script):
    plain, small = list(script.errors_table({"bfloat16": figures(0, 1), "int8": figures(1e-4, 0.9978)}))[-2:]
    assert plain == "| bfloat16 | 5.8 | 1.2718 | – | – | – | – |"
    assert small == "| int8 | 5.8 | 1.2718 | 1.0e-04 | 2.0e-04 | 3.0e-04 | 99.78% |"


def test_weight_only_errors_have_an_optional_table(script):
    errors = {"bfloat16": figures(0, 1), "int8": figures(1e-4, 0.9978)}
    assert len(list(script.tables({"errors": errors}))) == 6
    text = "\n".join(
        script.tables({"errors": errors, "weight_errors": {**errors, "Q8_0": figures(2e-4, 0.99)}})
    )
    assert "so that only weights differ" in text
    assert "| Q8_0 |" in text
