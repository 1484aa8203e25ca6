"""Conformance tests of the `TokenSampler` interface."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers, TokenSampler

LARGEST_DRAW = 1 - 2.0**-32
NEAR = 1e-4
"""Relative difference of two probabilities below which rounding may decide which of them passes a filter."""

SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"temperature": 0.5},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.05},
)


class TokenSamplerTests:
    """Conformance tests of a token sampler.

    Derive from this class and override the fixture `token_sampler`, and `device` if it is not for a CPU.
    """

    @pytest.fixture
    def token_sampler(self) -> type[TokenSampler]:
        """Return the class under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture token_sampler")

    @pytest.fixture
    def device(self) -> str:
        """Return the device of the logits."""
        return "cpu"

    @pytest.fixture
    def vocab_size(self) -> int:
        """Return the size of the larger vocabulary of the tests."""
        return 5000

    @pytest.fixture
    def num_draws(self) -> int:
        """Return the number of rows that sample a distribution. Reduce it only on very slow devices."""
        return 200

    @pytest.fixture
    def sample(self, token_sampler: type[TokenSampler], device: str) -> Any:
        """Return a function that builds a token sampler for the logits and samples as the engine does."""

        def sample(logits: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
            if reason := token_sampler.unsupported(device, logits.shape[1]):
                pytest.skip(reason)
            where = torch.device(device)
            built = token_sampler(logits.shape[1], where, may_wait=where.type == "cpu")
            return sample_in_groups(built, logits.to(where), _moved(numbers, where))

        return sample

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_draws_select_tokens_by_probability(
        self, sample: Any, num_draws: int, setting: dict[str, float]
    ) -> None:
        """Evenly spaced draws select each token in proportion to its probability, up to one draw."""
        logits = 2 * torch.randn(30, generator=torch.Generator().manual_seed(1))
        draws = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
        tokens = sample(logits.repeat(num_draws, 1), numbers_of(draws, 30, **setting))
        counts = torch.bincount(tokens.cpu(), minlength=30)
        expected = num_draws * probabilities(logits, **setting)
        assert (counts - expected).abs().max() <= 1.01, "tokens are not drawn by their probabilities"

    def test_tokens_pass_the_filters_of_their_rows(self, sample: Any, vocab_size: int) -> None:
        """Holds for different rows in one call, with a large vocabulary."""
        logits = torch.randn(len(SETTINGS), vocab_size, generator=torch.Generator().manual_seed(2))
        wide = [{**setting, "top_k": setting.get("top_k", 0) * (vocab_size // 20)} for setting in SETTINGS]
        rows = [numbers_of(torch.tensor([0.999]).double(), vocab_size, **setting) for setting in wide]
        numbers = RowNumbers(*(torch.cat(columns) for columns in zip(*rows, strict=True)))
        for draws in (numbers.draws, numbers.draws * 0, numbers.draws * 0 + LARGEST_DRAW):
            tokens = sample(logits, numbers._replace(draws=draws)).tolist()
            for row, setting, token in zip(logits, wide, tokens, strict=True):
                least = _least_kept(row, **setting)
                own = torch.softmax(row.double() / setting.get("temperature", 1.0), dim=-1)[token]
                assert own >= least * (1 - NEAR), f"a token that {setting} leaves out is drawn"

    def test_rows_do_not_depend_on_other_rows(self, sample: Any, vocab_size: int) -> None:
        generator = torch.Generator().manual_seed(3)
        logits = torch.randn(4, vocab_size, generator=generator)
        numbers = numbers_of(torch.rand(4, generator=generator).double(), vocab_size, top_p=0.9, min_p=0.01)
        together = sample(logits, numbers).tolist()
        assert sample(logits, numbers).tolist() == together, "the same draws select other tokens"
        backwards = sample(logits.flip(0), RowNumbers(*(column.flip(0) for column in numbers))).tolist()
        assert backwards[::-1] == together
        alone = [sample(logits[i : i + 1], numbers.of(slice(i, i + 1))).tolist() for i in range(4)]
        assert [token for [token] in alone] == together

    @pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p"])
    def test_each_row_has_its_own_numbers(self, sample: Any, num_draws: int, name: str) -> None:
        """Rows of one call differ in a single number: each has the probabilities of its own."""
        values = {"temperature": (0.3, 2.5), "top_k": (3, 12), "top_p": (0.4, 0.95), "min_p": (0.5, 0.02)}[
            name
        ]
        logits = 2 * torch.randn(30, generator=torch.Generator().manual_seed(6))
        draws = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
        for order in (values, values[::-1]):
            both = [numbers_of(draws, 30, **{name: value}) for value in order]
            numbers = RowNumbers(*(torch.cat(columns) for columns in zip(*both, strict=True)))
            tokens = sample(logits.repeat(2 * num_draws, 1), numbers).cpu()
            for own, value in zip(tokens.split(num_draws), order, strict=True):
                expected = num_draws * probabilities(logits, **{name: value})
                differs = (torch.bincount(own, minlength=30) - expected).abs().max()
                assert differs <= 1.01, f"a row with {name} {value} beside rows with {order}"

    def test_the_logits_stay_unchanged(self, sample: Any, device: str) -> None:
        logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(4)).to(device)
        before = logits.clone()
        for setting in SETTINGS:
            sample(logits, numbers_of(torch.full((3,), 0.5).double(), 50, **setting))
            assert torch.equal(logits, before), f"{setting} changes the logits"

    def test_tokens_are_ids_on_the_device(self, sample: Any, device: str) -> None:
        for setting in SETTINGS:
            tokens = sample(torch.zeros(3, 50), numbers_of(torch.full((3,), 0.5).double(), 50, **setting))
            assert (tokens.shape, tokens.dtype) == ((3,), torch.int64)
            assert tokens.device.type == torch.device(device).type

    def test_forbidden_tokens_are_never_drawn(self, sample: Any, num_draws: int) -> None:
        logits = torch.zeros(40)
        logits[1:39] = float("-inf")
        draws = torch.linspace(0, LARGEST_DRAW, min(num_draws, 20), dtype=torch.float64)
        for setting in SETTINGS:
            tokens = sample(logits.repeat(len(draws), 1), numbers_of(draws, 40, **setting))
            assert set(tokens.tolist()) == {0, 39}, f"{setting} draws a forbidden token, or not all allowed"
        logits[0] = float("-inf")
        tokens = sample(logits.repeat(len(draws), 1), numbers_of(draws, 40, top_p=0.9))
        assert set(tokens.tolist()) == {39}

    def test_rows_without_probabilities_get_valid_tokens(self, sample: Any) -> None:
        logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(5))
        draws = torch.tensor([0.1, 0.5, 0.9, LARGEST_DRAW], dtype=torch.float64)
        for setting in SETTINGS:
            numbers = numbers_of(draws, 40, **setting)
            expected = sample(logits, numbers).tolist()
            faulty = logits.clone()
            faulty[1, 3], faulty[3] = float("nan"), float("-inf")
            tokens = sample(faulty, numbers).tolist()
            assert all(0 <= token < 40 for token in tokens), f"{setting} draws {tokens}"
            assert tokens[::2] == expected[::2], "a row with NaN changes another row"


def numbers_of(
    draws: torch.Tensor,
    vocab_size: int,
    temperature: float = 1.0,
    top_k: float = 0,
    top_p: float = 2.0,
    min_p: float = 0.0,
) -> RowNumbers:
    """Return parameters of rows that differ only in their draws; a top_k of 0 is unset."""
    column = torch.ones(len(draws), 1)
    limit = column.long() * int(top_k or vocab_size)
    return RowNumbers(draws, column * temperature, limit, column * top_p, column * min_p)


def sample_in_groups(token_sampler: TokenSampler, logits: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
    """Sample rows by at most three calls, as described in `TokenSampler`."""
    vocab_size = logits.shape[1]
    has_k, has_p, has_min = (
        numbers.top_k[:, 0] < vocab_size,
        numbers.top_p[:, 0] < 1,
        numbers.min_p[:, 0] > 0,
    )
    is_filtered = has_k | has_p | has_min
    is_small = is_filtered & (numbers.top_k[:, 0] <= token_sampler.small_top_k)
    tokens: torch.Tensor | None = None
    for group in (~is_filtered, is_small, is_filtered & ~is_small):
        places = group.nonzero()[:, 0]
        if len(places):
            own = numbers.of(places)
            top_k, top_p, min_p = (bool(column[places].any()) for column in (has_k, has_p, has_min))
            filters = Filters(top_k, top_p, min_p, int(own.top_k.max()))
            is_whole = len(places) == len(logits)
            found = token_sampler.sample(logits if is_whole else logits[places], own, filters)
            if is_whole:
                return found
            tokens = found.new_empty(len(logits)) if tokens is None else tokens
            tokens[places] = found
    assert tokens is not None
    return tokens


def probabilities(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: float = 0,
    top_p: float = 2.0,
    min_p: float = 0.0,
) -> torch.Tensor:
    """Return the probabilities of a row's tokens after the filters, computed in float64 by a sort: [vocab]."""
    probs, order = torch.softmax(logits.double() / temperature, dim=-1).sort(descending=True)
    if top_k:
        probs[int(top_k) :] = 0
    probs = probs / probs.sum()
    kept = (probs.cumsum(dim=-1) - probs < top_p) & (probs >= min_p * probs[0])
    probs = torch.where(kept, probs, 0.0)
    return torch.zeros_like(probs).scatter(0, order, probs / probs.sum())


def _least_kept(logits: torch.Tensor, **setting: float) -> torch.Tensor:
    """Return the probability, before the filters, of the least likely token that passes them."""
    passed = probabilities(logits, **setting) > 0
    return torch.softmax(logits.double() / setting.get("temperature", 1.0), dim=-1)[passed].min()


def _moved(numbers: RowNumbers, device: torch.device) -> RowNumbers:
    return RowNumbers(*(column.to(device) for column in numbers))
