"""Sampling among the tokens that top_k, top_p and min_p leave, however many: without a sort, and without reading anything back.

What a sort would be asked for is where a running sum, by probability, reaches a number. That is found in two looks:

    the bits of a probability   |  0  0  |  15: its bin  |  15: its place in the bin  |
    first look                             sums by bin → the bin in which the number is reached
    second look                                            sums within that bin → the probability

for the bits of a float32 that is not negative, read as an integer, are in the order of the floats. Probabilities are
counted in whole 2**-30ths: sums of integers are the same in whatever order a device adds them up, so that a row's token
depends on no other row, and comes out alike each time. Each row takes the same operations, whose number does not depend
on how many rows there are.

The token is the one that `sample_candidates` would draw from as many candidates as the vocabulary has, to the last
digits: tokens come in the order of their probabilities, the most likely first. Of tokens that are exactly as likely, all
are kept if one is, and the first ones come first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .draw import RowNumbers

ONE = 1 << 30
"""The mass of probability 1."""

BITS = 15
NUM_BINS = 1 << BITS


class Reached(NamedTuple):
    """Where a running sum of weights, by ascending key, reaches a number: each [S, 1].

    Attributes:
        key: the smallest one with which the sum reaches it.
        below: the sum of the weights of all smaller keys.
        at: the sum of those of this key.
    """

    key: torch.Tensor
    below: torch.Tensor
    at: torch.Tensor


class RunningSums:
    """Sums of weights in ascending order of keys, for each row.

    Args:
        keys: below 2**30, int32: [S, N].
        weights: not negative, int32, whose sum in a row is below 2**31: [S, N].
    """

    def __init__(self, keys: torch.Tensor, weights: torch.Tensor) -> None:
        self._keys = keys
        self._weights = weights
        self._bins = _sums_by_bin(keys >> BITS, weights)

    @property
    def total(self) -> torch.Tensor:
        """The sum of all weights: [S, 1], int32."""
        return self._bins[:, -1:]

    def reach(self, number: torch.Tensor) -> Reached:
        """Return where numbers are reached: at key 0 where they are 0 or less.

        Args:
            number: [S, 1], at most the total.
        """
        number = number.int()
        upper, below = _find(self._bins, number)
        is_there = (self._keys >> BITS) == upper
        within = _sums_by_bin(self._keys & (NUM_BINS - 1), self._weights * is_there)
        lower, below_within = _find(within, number - below)
        at = within.gather(-1, lower) - below_within
        return Reached((upper << BITS | lower).int(), below + below_within, at)


def sample_selected(logits: torch.Tensor, numbers: RowNumbers, *, limits_k: bool) -> torch.Tensor:
    """Sample among the tokens that top_k, then top_p, then min_p leave: [S].

    Args:
        logits: [S, vocab].
        numbers: of the rows.
        limits_k: whether any top_k is smaller than the vocabulary.
    """
    probs = torch.softmax(logits / numbers.temperature, dim=-1).nan_to_num_(0.0)
    keys = probs.view(torch.int32)
    masses = (probs * ONE).round_().int()
    whole = torch.full_like(numbers.top_k, ONE)
    if limits_k:
        vocab_size = logits.shape[-1]
        least = RunningSums(keys, torch.ones_like(keys)).reach(vocab_size - numbers.top_k + 1).key
        masses *= keys >= least
        kept = masses.sum(dim=-1, keepdim=True)
        whole = torch.where(numbers.top_k < vocab_size, kept, whole)
    sums = RunningSums(keys, masses)
    largest = probs.amax(dim=-1, keepdim=True)
    least = torch.where(numbers.top_p < 1, sums.reach(_without(sums, numbers.top_p, whole)).key, 0)
    least = torch.maximum(least, (numbers.min_p * largest).view(torch.int32))
    least = torch.minimum(least, largest.view(torch.int32))
    kept = (masses * (keys >= least)).sum(dim=-1, keepdim=True)
    return _take(keys, sums, torch.minimum((numbers.draws[:, None] * kept).long(), kept - 1))


def _without(sums: RunningSums, top_p: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return the number that is reached with the least likely of the tokens that top_p keeps: [S, 1]."""
    return sums.total - (top_p.double() * whole).ceil().long() + 1


def _take(keys: torch.Tensor, sums: RunningSums, goal: torch.Tensor) -> torch.Tensor:
    """Return the tokens at which running sums of masses, from the most likely token on, exceed the goals: [S]."""
    found = sums.reach(sums.total - goal)
    above = sums.total - found.below - found.at
    mass = (found.key.view(torch.float32) * ONE).round_().long().clamp_min(1)
    number = (goal - above) // mass + 1  # among the equally likely ones
    places = torch.searchsorted(
        (keys == found.key).cumsum(dim=-1, dtype=torch.int32), number.int(), out_int32=False
    )
    return places[:, 0].clamp_max(keys.shape[-1] - 1)


def _sums_by_bin(bins: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return running sums of weights by bin: [S, NUM_BINS], int32. The bins are overwritten."""
    num_rows = len(bins)
    bins += torch.arange(num_rows, dtype=torch.int32, device=bins.device)[:, None] * NUM_BINS
    sums = torch.zeros(num_rows * NUM_BINS, dtype=torch.int32, device=bins.device)
    sums.index_add_(0, bins.reshape(-1), weights.reshape(-1))
    return sums.view(num_rows, NUM_BINS).cumsum(dim=-1, dtype=torch.int32)


def _find(sums: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first bins whose running sums are at least the numbers, and the sums before them: [S, 1] each."""
    bins = torch.searchsorted(sums, number).clamp_max(NUM_BINS - 1)
    before = sums.gather(-1, (bins - 1).clamp_min(0)) * (bins > 0)
    return bins, before
