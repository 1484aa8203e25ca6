"""XTC leaves out what its published definition does, at positions that the request's seed decides about."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
import torch

from llmfw.core.testing import LogitsProcessorTests
from llmfw.core.testing.logits_processors import ExampleContext, ExampleRow, Reference, processed_by
from llmfw.plugins.samplers.xtc import XTC


@pytest.fixture
def processor() -> XTC:
    return XTC(ExampleContext(), XTC.Options())


def left_out(logits: Sequence[float], threshold: float) -> set[int]:
    """Return the tokens that XTC leaves out, in float64: all that reach the threshold but the least likely one."""
    largest = max(logits)
    weights = [math.exp(each - largest) for each in logits]
    total = sum(weights)
    order = sorted(range(len(logits)), key=lambda token: (-weights[token], -token))
    likely = [token for token in order if logits[token] > -math.inf and weights[token] / total >= threshold]
    return set(likely[:-1])


def without_top_choices(row: ExampleRow, draw: Callable[..., float]) -> Sequence[float]:
    """Return the logits of a row as the definition says, with the row's random number."""
    logits = row.logits.tolist()
    if draw() >= row.fields["xtc_probability"]:
        return logits
    excluded = left_out(logits, row.fields.get("xtc_threshold", 0.1))
    return [-math.inf if token in excluded else logit for token, logit in enumerate(logits)]


class TestXTC(LogitsProcessorTests):
    @pytest.fixture
    def processor(self) -> XTC:
        return XTC(ExampleContext(), XTC.Options())

    @pytest.fixture
    def reference(self) -> Reference:
        return without_top_choices


@pytest.mark.parametrize("threshold", [0.01, 0.05, 0.1, 0.25, 0.51, None])
def test_all_likely_tokens_but_the_last_go(processor: XTC, threshold: float | None) -> None:
    rng = random.Random(3)
    fields = {"xtc_probability": 1.0} | ({} if threshold is None else {"xtc_threshold": threshold})
    num_left_out = 0
    for _ in range(200):
        logits = [rng.gauss(0, rng.choice([0.5, 2, 5])) for _ in range(128)]
        given = torch.tensor(logits)
        [found] = processed_by(processor, [ExampleRow(fields, [1, 2], given)])
        expected = left_out(given.tolist(), 0.1 if threshold is None else threshold)
        assert set(torch.nonzero(found == -torch.inf)[:, 0].tolist()) == expected
        others = [token for token in range(128) if token not in expected]
        assert torch.equal(found[others], given[others])
        num_left_out += len(expected)
    assert (num_left_out > 0) == (threshold is None or threshold <= 0.5)


def test_forbidden_tokens_neither_count_nor_stay(processor: XTC) -> None:
    """With a threshold of 0 each allowed token reaches it, and one of them stays."""
    logits = torch.tensor([3.0, 2.0, -torch.inf, 1.0, -torch.inf])
    [found] = processed_by(
        processor, [ExampleRow({"xtc_probability": 1.0, "xtc_threshold": 0.0}, [1, 2], logits)]
    )
    assert torch.isfinite(found).tolist() == [False, False, False, True, False]


def test_a_token_at_the_threshold_is_likely(processor: XTC) -> None:
    fields = {"xtc_probability": 1.0, "xtc_threshold": 0.5}
    [found] = processed_by(processor, [ExampleRow(fields, [1, 2], torch.zeros(2))])
    assert torch.isfinite(found).sum() == 1


def test_the_first_of_equal_tokens_stays(processor: XTC) -> None:
    logits = torch.tensor([1.0, 1.0, 1.0, -9.0])
    [found] = processed_by(processor, [ExampleRow({"xtc_probability": 1.0}, [1, 2], logits)])
    assert torch.isfinite(found).tolist() == [True, False, False, True]


def test_the_probability_holds_over_positions(processor: XTC) -> None:
    """And each seed has positions of its own."""
    rows = [
        ExampleRow({"xtc_probability": 0.3}, [1] * length, torch.tensor([1.0, 1.0]), 1, seed)
        for seed in range(40)
        for length in range(2, 52)
    ]
    applied = (processed_by(processor, rows)[:, 1] == -torch.inf).view(40, 50)
    assert abs(applied.float().mean().item() - 0.3) < 0.03
    assert len({tuple(row) for row in applied.tolist()}) == 40
