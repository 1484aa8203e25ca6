"""Sampling without a sort draws what a sort would have drawn, whatever the filters leave, and each row alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers
from llmfw.core.step.sampling.draw import sample_candidates
from llmfw.core.step.sampling.select import RunningSums, sample_selected

from ....length import also_each

EDGE = 2e-5
"""Draws that are so near to the next token's may give either: sums in float32 and in whole numbers differ by less."""

TIE = 5e-7
"""Probabilities that differ by less of them may be equal in float32."""


def draw_numbers(size: int, vocab_size: int, generator: torch.Generator) -> RowNumbers:
    """Return numbers of rows that ask for anything."""

    def some(values: torch.Tensor, otherwise: float) -> torch.Tensor:
        return torch.where(torch.rand(size, 1, generator=generator) < 0.5, values, otherwise)

    return RowNumbers(
        torch.rand(size, generator=generator, dtype=torch.float64),
        0.2 + 2 * torch.rand(size, 1, generator=generator),
        some(torch.randint(2, vocab_size + 1, (size, 1), generator=generator), vocab_size).long(),
        some(torch.rand(size, 1, generator=generator).clamp_min(1e-6), 2.0),
        some(torch.rand(size, 1, generator=generator) ** 3, 0.0),
    )


def sample(logits: torch.Tensor, numbers: RowNumbers) -> list[int]:
    has_k, has_p, has_min = numbers.top_k < logits.shape[-1], numbers.top_p < 1, numbers.min_p > 0
    filters = Filters(*(bool(column.any()) for column in (has_k, has_p, has_min)), int(numbers.top_k.max()))
    tokens: list[int] = sample_selected(logits, numbers, filters).tolist()
    return tokens


def allowed(logits: torch.Tensor, numbers: RowNumbers) -> set[int]:
    """Return the tokens that may be drawn in the one row of these numbers, in float64 and by a sort."""
    [(draw, temperature, top_k, top_p, min_p)] = zip(
        *(column.flatten().tolist() for column in numbers), strict=True
    )
    scaled = logits.double().numpy() / temperature
    probs = np.exp(scaled - scaled.max())
    order = np.argsort(-probs, kind="stable")
    probs = probs[order]
    probs[probs < probs[int(top_k) - 1]] = 0  # of equally likely ones all stay
    probs /= probs.sum()
    before = np.cumsum(probs) - probs
    below = before[np.searchsorted(-probs, -probs)]  # of all that are more likely
    least_below = before[np.searchsorted(-probs, -probs * (1 + TIE))]
    kept = np.where((least_below < top_p + EDGE) & (probs >= min_p * probs[0] * (1 - EDGE)), probs, 0)
    surely = np.where((below < top_p - EDGE) & (probs >= min_p * probs[0] * (1 + EDGE)), probs, 0)
    first = max(1e-12, draw - EDGE) * surely.sum()
    last = (draw + EDGE) * kept.sum()
    sums = np.cumsum(kept)
    return {int(token) for token in order[(sums > first * (1 - EDGE)) & (sums - kept <= last)]}


@pytest.mark.parametrize(
    ("vocab_size", "spread"),
    [
        *((40, 0.01), (40, 1), (40, 6), (3000, 0.01), (3000, 1), (3000, 6), (40_000, 1)),
        *also_each((40_000, 0.01), (40_000, 6)),
    ],
)
def test_selection_equals_a_float64_sort(vocab_size: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = spread * torch.randn(40, vocab_size, generator=generator)
    numbers = draw_numbers(40, vocab_size, generator)
    for row, token in enumerate(sample(logits, numbers)):
        assert token in allowed(logits[row], numbers.of(slice(row, row + 1)))


@pytest.mark.parametrize("vocab_size", [40, 3000])
def test_selection_equals_enough_candidates(vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(300, vocab_size, generator=generator)
    numbers = draw_numbers(300, vocab_size, generator)
    expected = sample_candidates(logits, numbers, vocab_size)[0]
    assert (
        sum(found != token for found, token in zip(sample(logits, numbers), expected.tolist(), strict=True))
        <= 1
    )


def test_equally_likely_tokens_are_all_kept() -> None:
    logits = (
        torch.tensor([2.0, 0, 1, 1, 1, 1, 0]).log().clamp_min(-50).repeat(6, 1)
    )  # 1/3, then four times 1/6
    draws = torch.tensor([0, 0.34, 0.5, 0.67, 0.84, 0.999], dtype=torch.float64)
    columns = [torch.full((6, 1), value) for value in (1.0, 7, 0.4, 0.0)]
    assert sample(logits, RowNumbers(draws, *columns)) == [0, 2, 3, 4, 5, 5]
    columns = [torch.full((6, 1), value) for value in (1.0, 2, 2.0, 0.0)]
    assert sample(logits, RowNumbers(draws, *columns)) == [0, 2, 3, 4, 5, 5]


@given(st.integers(0, 2**30), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_a_row_is_selected_independently_of_others(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(size, 700, generator=generator).bfloat16().float()  # many are equally likely
    numbers = draw_numbers(size, 700, generator)
    alone = [sample(logits[i : i + 1], numbers.of(slice(i, i + 1)))[0] for i in range(size)]
    assert sample(logits, numbers) == alone


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2**-32])
@pytest.mark.parametrize(("top_p", "min_p"), [(1e-6, 0.0), (2.0, 1.0), (0.3, 0.5)])
def test_the_most_likely_token_is_always_kept(draw: float, top_p: float, min_p: float) -> None:
    columns = (torch.tensor([[value]]) for value in (1.0, 900, top_p, min_p))
    logits = torch.zeros(1, 900)
    logits[0, 77] = 3
    assert sample(logits, RowNumbers(torch.tensor([draw], dtype=torch.float64), *columns)) == [77]


def test_invalid_logits_do_not_affect_other_rows() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 500, generator=generator)
    numbers = draw_numbers(4, 500, generator)
    expected = sample(logits, numbers)
    logits[1, 3], logits[2] = float("nan"), float("-inf")
    found = sample(logits, numbers)
    assert [found[0], found[3]] == [expected[0], expected[3]]
    assert all(0 <= token < 500 for token in found)


@given(st.lists(st.tuples(st.integers(0, 2**30 - 1) | st.integers(0, 50), st.integers(0, 1000)), min_size=1))
@settings(max_examples=50, deadline=None)
def test_running_sums_equal_a_sort(pairs: list[tuple[int, int]]) -> None:
    keys, weights = np.array(pairs).T
    order = np.argsort(keys, kind="stable")
    running = np.cumsum(weights[order])
    sums = RunningSums(*(torch.from_numpy(values.astype(np.int32))[None] for values in (keys, weights)))
    assert sums.total.item() == running[-1]
    for number in {1, int(running[-1]) // 2, int(running[-1])} - {0}:
        if number <= running[-1]:
            found = sums.reach(torch.tensor([[number]]))
            key = keys[order][np.searchsorted(running, number)]
            assert found.key.item() == key
            assert found.below.item() == weights[keys < key].sum()
            assert found.through.item() == weights[keys <= key].sum()
