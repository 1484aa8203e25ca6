"""The sampling kernels against torch: by Triton's interpreter where TRITON_INTERPRET=1, else on a GPU.

Run by test_interpreted_kernels.py and, on a GPU, by tests/gpu/test_sampling.py.
"""

from __future__ import annotations

import os

import pytest
import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers, TokenSampler
from llmfw.core.step.sampling.draw import sample_all as torch_all
from llmfw.core.step.sampling.select import sample_selected as torch_selected
from llmfw.core.testing import TokenSamplerTests
from llmfw.plugins.sampling_triton.ops import sample_all, sample_selected
from llmfw.plugins.sampling_triton.sampler import TritonSampler

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SOME = 4 if DEVICE == "cpu" else 64
"""Rows of a test; the interpreter takes a tenth of a second for each."""

NONE, MASKED = float("nan"), float("-inf")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class TestTritonSampler(TokenSamplerTests):
    @pytest.fixture
    def token_sampler(self) -> type[TokenSampler]:
        return TritonSampler

    @pytest.fixture
    def device(self) -> str:
        return DEVICE

    @pytest.fixture
    def vocab_size(self) -> int:
        return 300 if DEVICE == "cpu" else 5000

    @pytest.fixture
    def num_draws(self) -> int:
        return 10 if DEVICE == "cpu" else 200


def random_numbers(size: int, vocab_size: int) -> RowNumbers:
    """Return parameters of rows, each of which uses some filters."""

    def some(values: torch.Tensor, otherwise: float) -> torch.Tensor:
        return torch.where(torch.rand(size, 1) < 0.5, values, otherwise)

    numbers = RowNumbers(
        torch.rand(size, dtype=torch.float64).clamp_max(1 - 2**-32),
        0.1 + 2 * torch.rand(size, 1),
        some(torch.randint(1, vocab_size + 1, (size, 1)), vocab_size).long(),
        some(torch.rand(size, 1).clamp_min(1e-6), 2.0),
        some(torch.rand(size, 1) ** 3, 0.0),
    )
    return RowNumbers(*(column.to(DEVICE) for column in numbers))


def plain_numbers(draws: torch.Tensor, vocab_size: int, top_p: float = 2.0, min_p: float = 0.0) -> RowNumbers:
    """Return parameters of rows that differ by their draws alone."""
    column = torch.ones(len(draws), 1, device=DEVICE)
    return RowNumbers(
        draws.double().to(DEVICE), column, column.long() * vocab_size, column * top_p, column * min_p
    )


def num_different(logits: torch.Tensor, numbers: RowNumbers, chunk: int, has_top_k: bool = True) -> int:
    found = sample_selected(logits, numbers, has_top_k, chunk)
    return int((found != torch_selected(logits, numbers, Filters(True, True, True, 0))).sum())


@pytest.mark.parametrize("spread", [0.01, 1, 20])
@pytest.mark.parametrize(("vocab_size", "chunk"), [(1, 16), (2, 16), (1000, 256), (4099, 1024)])
def test_selected_tokens_equal_torch(vocab_size: int, chunk: int, spread: float) -> None:
    torch.manual_seed(vocab_size)
    logits = spread * torch.randn(SOME, vocab_size, device=DEVICE)
    assert num_different(logits, random_numbers(SOME, vocab_size), chunk) <= 1


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 300,
        [MASKED] * 299 + [1.0],
        [MASKED] * 300,
        [NONE] + [0.0] * 299,
        [NONE] * 300,
        [float("inf")] + [0.0] * 299,
        [3.0] + [0.0] * 150 + [MASKED] * 149,
        [float(i % 3) for i in range(300)],
    ],
    ids=["equal", "one allowed", "none allowed", "a NaN", "NaN", "infinity", "masked", "three values"],
)
def test_unusual_rows_are_sampled_as_by_torch(values: list[float]) -> None:
    torch.manual_seed(1)
    logits = torch.tensor([values] * 3, device=DEVICE)
    numbers = random_numbers(3, 300)
    assert num_different(logits, numbers, 64) == 0
    tokens = sample_all(logits, numbers, 64)
    assert (tokens >= 0).all()
    assert (tokens < 300).all()
    if logits.isfinite().any(dim=-1).all() and not logits.isnan().any():
        assert not logits.gather(1, tokens[:, None]).isneginf().any()


@pytest.mark.parametrize(("vocab_size", "chunk"), [(1, 16), (2, 16), (1000, 256), (4099, 1024)])
def test_unfiltered_tokens_equal_torch(vocab_size: int, chunk: int) -> None:
    torch.manual_seed(vocab_size)
    logits = 2 * torch.randn(8, vocab_size, device=DEVICE)
    numbers = random_numbers(8, vocab_size)
    assert int((sample_all(logits, numbers, chunk) != torch_all(logits, numbers)).sum()) <= 1


def test_rows_do_not_depend_on_other_rows() -> None:
    torch.manual_seed(2)
    logits = torch.randn(3, 300, device=DEVICE)
    numbers = random_numbers(3, 300)
    for sample in (sample_all, lambda *args: sample_selected(*args[:2], True, args[2])):
        together = sample(logits, numbers, 128)
        alone = [sample(logits[i : i + 1], numbers.of(slice(i, i + 1)), 128) for i in range(3)]
        assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize(
    ("top_p", "min_p", "expected"),
    [(2.0, 0.0, [2, 2, 4, 4, 8]), (0.75, 0.0, [0, 0, 5, 5, 10]), (2.0, 0.3, [0, 0, 5, 5, 10])],
)
def test_draws_are_inverted_exactly(top_p: float, min_p: float, expected: list[int]) -> None:
    logits = torch.tensor([0.1, 0.1, 0.2, 0.2, 0.4], device=DEVICE).log().repeat(20, 1)
    numbers = plain_numbers((torch.arange(20) + 0.5) / 20, 5, top_p, min_p)
    assert sample_selected(logits, numbers, False, 16).bincount(minlength=5).tolist() == expected
    if top_p > 1 and not min_p:
        assert sample_all(logits, numbers, 16).bincount(minlength=5).tolist() == expected


def test_the_kernels_chunk_is_used_without_being_asked() -> None:
    torch.manual_seed(3)
    logits = torch.randn(2, 5000, device=DEVICE)[:, :4999]  # rows that are not dense
    numbers = random_numbers(2, 4999)
    expected = torch_selected(logits, numbers, Filters(True, True, True, 0))
    assert torch.equal(sample_selected(logits, numbers, True), expected)
    assert torch.equal(sample_all(logits, numbers), torch_all(logits, numbers))


def test_no_rows_give_no_tokens() -> None:
    logits, numbers = torch.empty(0, 50, device=DEVICE), random_numbers(0, 50)
    assert sample_all(logits, numbers).shape == sample_selected(logits, numbers, True).shape == (0,)
