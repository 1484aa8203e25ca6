"""The sampling kernels on a GPU draw the tokens that torch draws, in the sizes of a language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers
from llmfw.core.step.sampling.draw import sample_all
from llmfw.core.step.sampling.select import sample_selected

from .nested import run_on_gpu

pytestmark = pytest.mark.gpu
ops = pytest.importorskip("llmfw.plugins.sampling_triton.ops", exc_type=ImportError)

VOCAB_SIZE = 128_256
NUM_ROWS = 64
NUM_DRAWS = 32
NEAR = 5e-5
"""By how much two draws may differ whose tokens are neighbors by rounding. A token of a flat row has 1e-5."""

SWAPPED = 1e-5
"""By how much the logits of two tokens may differ that rounding swaps in the order of probabilities."""


def numbers_of(draws: torch.Tensor, top_k: int, top_p: float, min_p: float) -> RowNumbers:
    column = torch.ones(len(draws), 1, device="cuda")
    return RowNumbers(draws, 0.8 * column, column.long() * top_k, column * top_p, column * min_p)


def num_different(logits: torch.Tensor, top_k: int, top_p: float, min_p: float) -> int:
    """Return how many tokens differ over several draws. They must lie between torch's for draws next to theirs."""
    filters = Filters(True, True, True, top_k)
    count = 0
    generator = torch.Generator("cuda").manual_seed(0)
    for _ in range(NUM_DRAWS):
        draws = torch.rand(len(logits), dtype=torch.float64, device="cuda", generator=generator)
        found = ops.sample_selected(logits, numbers_of(draws, top_k, top_p, min_p), top_k < VOCAB_SIZE)
        expected, before, after = (
            sample_selected(logits, numbers_of(each.clamp(0, 1 - 2**-32), top_k, top_p, min_p), filters)
            for each in (draws, draws - NEAR, draws + NEAR)
        )
        count += int((found != expected).sum())
        own, least, most = (logits.gather(1, each[:, None]) for each in (found, after, before))
        assert ((own >= least - SWAPPED) & (own <= most + SWAPPED)).all()
    return count


@pytest.mark.parametrize(("spread", "share"), [(0.1, 0.5), (1.0, 0.3), (4.0, 0.002)])
@pytest.mark.parametrize(
    "filters",
    [(VOCAB_SIZE, 0.9, 0.0), (VOCAB_SIZE, 2.0, 0.05), (5000, 2.0, 0.0), (20_000, 0.8, 0.001)],
    ids=str,
)
def test_selected_tokens_equal_torch(filters: tuple[int, float, float], spread: float, share: float) -> None:
    """In flat rows, rounding of softmax swaps neighbors, so that a share of their tokens may differ."""
    torch.manual_seed(0)
    logits = spread * torch.randn(NUM_ROWS, VOCAB_SIZE, device="cuda")
    assert num_different(logits, *filters) <= share * NUM_DRAWS * NUM_ROWS + 1


def test_unfiltered_tokens_are_near_torch() -> None:
    """Torch's cumulative sum in float32 is off by more than a token's probability."""
    torch.manual_seed(0)
    logits = 4 * torch.randn(NUM_ROWS, VOCAB_SIZE, device="cuda")
    draws = torch.rand(NUM_ROWS, dtype=torch.float64, device="cuda")
    numbers = numbers_of(draws, VOCAB_SIZE, 2.0, 0.0)
    found, expected = ops.sample_all(logits, numbers), sample_all(logits, numbers)
    sums = torch.softmax(logits.double() / 0.8, dim=-1).cumsum(dim=-1)
    assert int((found != expected).sum()) <= NUM_ROWS // 10
    ends = sums.gather(1, found[:, None])[:, 0]
    starts = torch.where(found > 0, sums.gather(1, (found - 1).clamp_min(0)[:, None])[:, 0], 0.0)
    assert ((starts <= draws + NEAR) & (draws - NEAR <= ends)).all()


def test_a_row_s_token_ignores_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(500, VOCAB_SIZE, device="cuda")
    draws = torch.rand(500, dtype=torch.float64, device="cuda")
    numbers = numbers_of(draws, VOCAB_SIZE, 0.9, 0.0)
    together = ops.sample_selected(logits, numbers, False)
    for size in (1, 7, 100):
        alone = ops.sample_selected(logits[:size], numbers.of(slice(0, size)), False)
        assert torch.equal(together[:size], alone)


def test_a_captured_sampler_draws_the_same_tokens() -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, VOCAB_SIZE, device="cuda")
    numbers = numbers_of(torch.rand(8, dtype=torch.float64, device="cuda"), VOCAB_SIZE, 0.9, 0.0)
    expected = ops.sample_selected(logits, numbers, False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = ops.sample_selected(logits, numbers, False)
    for _ in range(3):
        tokens.zero_()
        graph.replay()
        assert torch.equal(tokens, expected)


def test_small_and_unusual_rows_equal_torch() -> None:
    run_on_gpu([Path(__file__).parents[1] / "plugins" / "sampling_triton" / "kernels_and_torch.py"])
