"""Samples with top_k, top_p and min_p from any number of tokens, without sorting or waiting for the device.

Samplers usually sort the tokens by probability, to find the point at which the cumulative sum reaches a
number. This module finds the point in two passes, as a radix select does:

    the bits of a probability   |  0  0  |  15: its bin  |  15: its index in the bin  |
    first pass                             sums by bin → the bin in which the number is reached
    second pass                                            sums within that bin → the probability

This method works because the bits of non-negative float32 numbers, read as integers, have the same order as
the numbers. Probabilities are rounded to multiples of 2**-30 and summed as integers. Integer sums do not
depend on the order in which a device adds, so a row's token is reproducible and does not depend on other
rows. The number of operations does not depend on the number of rows.

Apart from rounding, the token is the one that `sample_candidates` would sample with the whole vocabulary as
candidates: tokens are ordered by probability, most likely first, and equally likely ones by id. If one of
several equally likely tokens passes the filters, all of them do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers

ONE = 1 << 30
"""Integer that represents a probability of 1."""

BITS = 15
NUM_BINS = 1 << BITS


class Reached(NamedTuple):
    """The point at which a cumulative sum of weights reaches a number. The sum is in ascending order of keys.

    All fields are int32: [S, 1].

    Attributes:
        key: smallest key at which the sum is at least the number.
        below: sum of the weights of all smaller keys.
        through: `below` plus the weights of this key.
    """

    key: torch.Tensor
    below: torch.Tensor
    through: torch.Tensor


class RunningSums:
    """Cumulative sums of weights in ascending order of keys, for each row.

    Args:
        keys: keys below 2**30, int32: [S, N].
        weights: non-negative weights, int32; the sum of a row is above 0 and below 2**31: [S, N].
    """

    def __init__(self, keys: torch.Tensor, weights: torch.Tensor) -> None:
        self._keys = keys
        self._weights = weights
        size = NUM_BINS + 1  # each row's first bin stays empty, so that every sum has a predecessor
        firsts = torch.arange(1, len(keys) * size, size, dtype=torch.int32, device=keys.device)[:, None]
        self._sums = _sums_by_bin((keys >> BITS).add_(firsts), weights)
        self._lower = (keys & (NUM_BINS - 1)).add_(firsts)

    @property
    def total(self) -> torch.Tensor:
        """The sum of all weights: [S, 1], int32."""
        return self._sums[:, -1:]

    def reach(self, number: torch.Tensor) -> Reached:
        """Return the point at which each row's cumulative sum reaches a number.

        Args:
            number: number for each row, from 1 to the total, int32: [S, 1].
        """
        upper, below = _find(self._sums, number)
        is_elsewhere = (self._keys >> BITS) != upper
        sums = _sums_by_bin(self._lower, self._weights.masked_fill(is_elsewhere, 0))
        lower, below_within = _find(sums, number - below)
        key = torch.add(lower, upper, alpha=NUM_BINS).int()
        return Reached(key, below + below_within, below + sums.gather(-1, lower + 1))


def sample_selected(logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
    """Sample from the tokens that pass top_k, then top_p, then min_p; return token ids: [S].

    Args:
        logits: logits: [S, vocab].
        numbers: parameters of the rows. An unset top_p must exceed 1 by more than rounding errors, such as 2.
        filters: filters that the rows use.
    """
    vocab_size = logits.shape[-1]
    # If a row's probabilities are NaN, the result is still a valid token, because the sums below are never 0.
    probs = torch.softmax(logits / numbers.temperature, dim=-1).nan_to_num_(1 / vocab_size)
    keys = probs.view(torch.int32)
    whole: torch.Tensor | int = ONE
    if filters.top_k:
        rank = (vocab_size + 1 - numbers.top_k).int()
        least = RunningSums(keys, torch.ones_like(keys)).reach(rank).key
    masses = (probs * ONE).round_().int()
    if filters.top_k:
        masses.masked_fill_(keys < least, 0)
        whole = torch.where(numbers.top_k < vocab_size, masses.sum(dim=-1, keepdim=True), ONE)
    sums = RunningSums(keys, masses)
    kept = sums.total
    if filters.top_p:
        left_out = sums.total - numbers.top_p.double() * whole
        least, below, _ = sums.reach((left_out + 1).int().clamp_min(1))
        kept = sums.total - below
    if filters.min_p:
        least_likely = (numbers.min_p * probs.amax(dim=-1, keepdim=True)).view(torch.int32)
        least = torch.maximum(least, least_likely) if filters.top_p else least_likely
        kept = masses.masked_fill(keys < least, 0).sum(dim=-1, keepdim=True, dtype=torch.int32)
    number = sums.total - (numbers.draws[:, None] * kept).int()
    found = sums.reach(number)
    del sums, masses  # frees memory before tensors of the same size are allocated
    return _take(keys, found, number)


def _take(keys: torch.Tensor, found: Reached, number: torch.Tensor) -> torch.Tensor:
    """Return the tokens at which the cumulative sums reach the numbers: [S].

    Tokens are summed in ascending order of probability, and equally likely ones in descending order of id.
    """
    mass = (found.key.view(torch.float32) * ONE).round_().int()
    num_before = (found.through - number) // mass
    is_meant = keys == found.key
    return torch.searchsorted(is_meant.cumsum(dim=-1, dtype=torch.int32), num_before, right=True)[:, 0]


def _sums_by_bin(bins: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return each row's cumulative sums of weights by bin, int32: [S, 1 + NUM_BINS]. The first column is 0.

    Args:
        bins: bin of each weight, numbered across all rows, below S × (1 + NUM_BINS): [S, N].
        weights: weights to sum: [S, N].
    """
    num_rows = len(bins)
    sums = torch.zeros(num_rows * (NUM_BINS + 1), dtype=torch.int32, device=bins.device)
    sums.index_add_(0, bins.reshape(-1), weights.reshape(-1))
    return sums.view(num_rows, -1).cumsum(dim=-1, dtype=torch.int32)


def _find(sums: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first bin whose sum is at least the number, and the sum before that bin: [S, 1] each."""
    bins = torch.searchsorted(sums, number) - 1
    return bins, sums.gather(-1, bins)
