"""The sampler: distributions, penalties, and that a row does not depend on its neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from llmfw.core.base.request import SamplingParams
from llmfw.core.base.step import Ints
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.sampling.randomness import uniform
from llmfw.core.step.sampling.sampler import Sampler
from llmfw.plugins.sampling_torch.sampler import TorchSampler

from ....length import also_each, of_length
from .sampled_rows import SampledRow, positions_of, rows_of

CPU = torch.device("cpu")
PROMPT = [1, 2, 3]


def plan(
    sampling: SamplingParams, row: int = 0, output: Sequence[int] = (), eos: tuple[int, ...] = ()
) -> SampledRow:
    return SampledRow.of(sampling, row, PROMPT, output, eos)


def torch_sampler(max_rows: int, vocab_size: int, staging: Staging | None = None) -> Sampler:
    staging = staging or Staging(CPU)
    drawing = TorchSampler(vocab_size, CPU, may_wait=staging.is_shared)
    return Sampler(max_rows, vocab_size, CPU, drawing, staging)


def sample(logits: torch.Tensor, planned: Sequence[SampledRow], *, packs: bool = False) -> list[int]:
    staging = Staging(CPU, packs=packs)
    sampler = torch_sampler(max(p.start.row for p in planned) + 1, logits.shape[-1], staging)
    for p in planned:
        sampler.start(p.start)
    sampler.recount([p.counts for p in planned if p.counts is not None])
    tokens: list[int] = sampler.sample(logits.clone(), rows_of(planned), positions_of(planned)).tolist()
    return tokens


def start(sampler: Sampler, planned: SampledRow) -> tuple[Ints, Ints]:
    """Start a row; return rows and positions of a step that samples it."""
    sampler.start(planned.start)
    assert planned.counts is not None
    sampler.recount([planned.counts])
    return rows_of([planned]), positions_of([planned])


def frequencies(logits: torch.Tensor, sampling: dict[str, float], draws: int) -> torch.Tensor:
    planned = [plan(SamplingParams(seed=seed, **sampling), row=seed) for seed in range(draws)]
    tokens = sample(logits.repeat(draws, 1), planned)
    return torch.bincount(torch.tensor(tokens), minlength=logits.shape[-1]) / draws


def reference(logits: torch.Tensor, sampling: dict[str, float]) -> torch.Tensor:
    """transformers' warpers, in the order in which `generate` applies them."""
    scores, ids = logits[None], torch.tensor([PROMPT])
    for name, warper in (
        ("temperature", TemperatureLogitsWarper),
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
        ("min_p", MinPLogitsWarper),
    ):
        if name in sampling:
            scores = warper(sampling[name])(ids, scores)
    return torch.softmax(scores[0], dim=-1)


SAMPLING: list[dict[str, float]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 1.7, "top_k": 12, "top_p": 0.8, "min_p": 0.05},
]


@pytest.mark.parametrize(
    ("sampling", "vocab_size"),
    [
        *((sampling, 30) for sampling in SAMPLING),
        *((sampling, 5000) for sampling in (SAMPLING[0], SAMPLING[-1])),
        *also_each(*((sampling, 5000) for sampling in SAMPLING[1:-1])),
    ],
)
def test_sampling_frequencies_equal_transformers(sampling: dict[str, float], vocab_size: int) -> None:
    logits = 2.5 * torch.randn(vocab_size, generator=torch.Generator().manual_seed(1))
    expected = reference(logits, sampling)
    draws = of_length(1500, 4000)
    found = frequencies(logits, sampling, draws)
    assert (found[expected == 0] == 0).all()
    assert (found - expected).abs().sum() < 3.5 * (expected * (1 - expected) / draws).sqrt().sum()


def test_flat_distributions_are_cut_exactly() -> None:
    logits = torch.linspace(0.1, 0, 5000)
    expected = reference(logits, {"top_p": 0.9})
    found = frequencies(logits, {"top_p": 0.9}, of_length(1000, 3000))
    assert (found[expected == 0] == 0).all()
    assert found[2000:4000].sum() == pytest.approx(float(expected[2000:4000].sum()), abs=0.05)


@pytest.mark.parametrize("spread", [0.2, 3])
@pytest.mark.parametrize("vocab_size", [700, 3000, 9000])
def test_tokens_do_not_depend_on_reading_logits(vocab_size: int, spread: float) -> None:
    filters: list[dict[str, Any]] = [
        {"top_p": 0.9},
        {"top_p": 1e-300},
        {"min_p": 0.1},
        {"top_k": 1500},
        {"top_k": 2000, "top_p": 0.7},
    ]
    logits = spread * torch.randn(60, vocab_size, generator=torch.Generator().manual_seed(1))
    planned = [plan(SamplingParams(seed=i, **filters[i % 5]), row=i) for i in range(60)]
    looked, selected = (sample(logits, planned, packs=packs) for packs in (False, True))
    assert sum(token != other for token, other in zip(looked, selected, strict=True)) <= 1


@given(
    st.lists(
        st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 0}, {"min_p": 0.3}]),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=30)
def test_a_row_s_token_ignores_neighbors_settings(mixed: list[dict[str, float]]) -> None:
    logits = torch.randn(len(mixed), 2000, generator=torch.Generator().manual_seed(3))
    planned = [plan(SamplingParams(seed=i, **sampling), row=i) for i, sampling in enumerate(mixed)]
    together = sample(logits, planned)
    alone = [sample(logits[i : i + 1], [planned[i]])[0] for i in range(len(mixed))]
    assert together == alone


def test_near_zero_temperature_is_greedy() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9]])
    for temperature in (0.0, 1e-9, 1e-300):
        assert sample(logits, [plan(SamplingParams(temperature=temperature, seed=1))]) == [1]


def test_penalties_equal_openai_s_formula() -> None:
    output = [4, 4, 4, 7]
    sampler = torch_sampler(1, 10)
    planned = plan(SamplingParams(temperature=0, frequency_penalty=0.5, presence_penalty=0.25), output=output)
    logits = torch.zeros(1, 10)
    sampler.sample(logits, *start(sampler, planned))
    counts = np.bincount(output, minlength=10)
    assert np.allclose(logits[0], -(counts * 0.5 + (counts > 0) * 0.25))


def test_repetition_penalty_equals_transformers() -> None:
    logits = torch.randn(1, 10, generator=torch.Generator().manual_seed(0))
    expected = RepetitionPenaltyLogitsProcessor(1.4)(torch.tensor([[*PROMPT, 5, 5]]), logits.clone())
    sampler = torch_sampler(1, 10)
    planned = plan(SamplingParams(temperature=0, repetition_penalty=1.4), output=[5, 5])
    sampler.sample(logits, *start(sampler, planned))
    assert torch.allclose(logits, expected)


def test_a_sampled_token_is_penalized_next_step() -> None:
    sampler = torch_sampler(1, 3)
    planned = plan(SamplingParams(temperature=0, frequency_penalty=2.0))
    rows, positions = start(sampler, planned)
    logits = torch.tensor([[0.0, 1.0, 0.5]])
    assert [sampler.sample(logits.clone(), rows, positions + i).item() for i in range(3)] == [1, 2, 0]


def test_bias_and_min_tokens_change_the_choice() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]])
    assert sample(logits, [plan(SamplingParams(temperature=0, logit_bias={0: 5.0}))]) == [0]
    assert sample(logits, [plan(SamplingParams(temperature=0, min_tokens=1), eos=(1,))]) == [2]
    assert sample(logits, [plan(SamplingParams(temperature=0, min_tokens=1), output=[2], eos=(1,))]) == [1]


def test_uniform_numbers_depend_on_seed_and_position() -> None:
    seeds, positions = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200))
    drawn = uniform(seeds.ravel(), positions.ravel())
    assert len(set(drawn)) == len(drawn)
    assert np.histogram(drawn, bins=10, range=(0, 1))[0] == pytest.approx(4000, rel=0.1)
