"""Samples token ids from logits.

A token depends only on its sequence's logits, seed and position. Each row of a batch goes through the same
operations, regardless of the other rows. The token of a row is found by inverting the row's cumulative
distribution at one random number, which depends on the row's seed and position. The number of operations in a
step depends on the kinds of sampling in the step, not on the number of rows. On a GPU, no operation waits for
the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from llmfw.core.base.step import Ints, RowCounts, RowStart, TokenMasks
from llmfw.core.interfaces.token_sampler import Filters, RowNumbers, TokenSampler

from ..device.staging import Staging
from ..logits.adjustments import Adjustments
from ..logits.masking import apply_masks
from .randomness import uniform

GREEDY_TEMPERATURE = 1e-5
"""Temperature below which the most likely token is chosen, because dividing by it could overflow."""

GREEDY, AMONG_FEW, AMONG_MANY, UNFILTERED = 0, 1, 2, 3
"""Kinds of sampling: the most likely token; with filters, and a top_k of at most the token sampler's
`small_top_k`; with filters, from any number of tokens; from all tokens."""

NO_TOP_P = 2.0
"""Value that replaces a top_p of 1. It exceeds any sum of rounded probabilities."""

LEAST_TOP_P = 2.0**-30
"""Lower bound of top_p. Smaller values would also keep one token, but float32 might round them to 0."""

LARGEST_DRAW = 1 - 2.0**-32
"""Largest random number. Multiplied by a 31-bit integer, it stays below that integer even after float64
rounding."""


class Sampler:
    """Samples one token for each row of logits.

    Args:
        max_rows: maximum number of running sequences.
        vocab_size: width of the logits.
        device: device of the logits.
        token_sampler: samples the tokens of all rows except greedy ones.
        staging: sends arrays to the device; None: a new one.
    """

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        device: torch.device,
        token_sampler: TokenSampler,
        staging: Staging | None = None,
    ) -> None:
        self._token_sampler = token_sampler
        self._vocab_size = vocab_size
        self._device = device
        self._staging = staging or Staging(device)
        self._adjustments = Adjustments(max_rows, self._staging, device)
        self._temperature = np.ones(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int64)
        self._top_p = np.ones(max_rows, dtype=np.float32)
        self._min_p = np.zeros(max_rows, dtype=np.float32)
        self._seeds = np.zeros(max_rows, dtype=np.uint64)
        self._kinds = np.zeros(max_rows, dtype=np.int8)

    def start(self, start: RowStart) -> None:
        """Record a sequence's sampling parameters, when it gets its row."""
        row, params = start.row, start.sampling
        self._temperature[row] = params.temperature
        self._top_k[row] = self._vocab_size if params.top_k <= 0 else min(params.top_k, self._vocab_size)
        self._top_p[row] = max(params.top_p, LEAST_TOP_P) if params.top_p < 1 else NO_TOP_P
        self._min_p[row] = params.min_p
        self._seeds[row] = np.uint64((params.seed or 0) & 0xFFFFFFFFFFFFFFFF)
        self._kinds[row] = self._kind(row)
        self._adjustments.start(start)

    def recount(self, counts: Sequence[RowCounts]) -> None:
        """Replace the token counts of some rows, which penalties use."""
        self._adjustments.recount(counts)

    def sample(
        self,
        logits: torch.Tensor,
        rows: Ints,
        positions: Ints,
        masks: TokenMasks | None = None,
        process: Callable[[torch.Tensor], None] | None = None,
    ) -> torch.Tensor:
        """Return a token id for each row of logits.

        Args:
            logits: logits, float32: [S, vocab]. Changed in place.
            rows: page table row of each sequence: [S].
            positions: position of each token to sample: [S].
            masks: masks of the rows in which some tokens are forbidden; None: no token is forbidden.
            process: function that applies logits processors to the adjusted logits, in place; None: no row
                uses a logits processor.

        Returns:
            Token ids, int64, on the device: [S].
        """
        if masks is not None:
            apply_masks(masks, logits, self._staging)
        penalized = self._adjustments.apply(logits, rows, positions, masks.places if masks else ())
        if process is not None:
            process(logits)
        tokens = self._choose(logits, rows, positions)
        if penalized is not None:
            self._adjustments.count(penalized, tokens)
        return tokens

    def are_finite(self, logits: torch.Tensor, rows: Ints, tokens: torch.Tensor) -> torch.Tensor:
        """Return whether each row of logits has neither NaN nor positive infinity: [S], bool, on the device.

        Negative infinity marks forbidden tokens.

        Args:
            logits: logits after `sample`: [S, vocab].
            rows: page table row of each sequence: [S].
            tokens: tokens that `sample` returned: [S].
        """
        if np.count_nonzero(self._kinds[rows]):
            largest = logits.amax(dim=-1)  # NaN if any logit is NaN
        elif self._staging.is_shared:  # numpy's calls take a fraction of torch's time
            return torch.from_numpy(logits.numpy()[np.arange(len(rows)), tokens.numpy()] < np.inf)
        else:  # argmax also treats NaN as the largest number
            largest = logits.gather(1, tokens[:, None])[:, 0]
        return largest < torch.inf

    def _choose(self, logits: torch.Tensor, rows: Ints, positions: Ints) -> torch.Tensor:
        kinds = self._kinds[rows]
        if not np.count_nonzero(kinds):
            return self._take_largest(logits)
        order = kinds.argsort(kind="stable")  # groups rows by kind
        rows = rows[order]
        places, draws, *columns = self._staging.send(
            order,
            np.minimum(uniform(self._seeds[rows], positions[order]), LARGEST_DRAW),
            *(column[rows] for column in (self._temperature, self._top_k, self._top_p, self._min_p)),
        )
        numbers = RowNumbers(draws, *(column[:, None] for column in columns))
        tokens = torch.empty(len(rows), dtype=torch.long, device=self._device)
        first = 0
        for kind, count in enumerate(np.bincount(kinds).tolist()):
            if count:
                part = slice(first, first + count)
                if count == len(rows):
                    return self._choose_kind(kind, rows, logits, numbers)
                at = places[part]
                chosen = self._choose_kind(kind, rows[part], logits.index_select(0, at), numbers.of(part))
                tokens.index_copy_(0, at, chosen)
                first += count
        return tokens

    def _choose_kind(self, kind: int, rows: Ints, logits: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
        """Return token ids for rows of one kind."""
        if kind == GREEDY:
            return self._take_largest(logits)
        largest = int(self._top_k[rows].max())
        has_top_k = kind != UNFILTERED and bool((self._top_k[rows] < self._vocab_size).any())
        filters = Filters(
            has_top_k, bool((self._top_p[rows] < 1).any()), bool(self._min_p[rows].any()), largest
        )
        return self._token_sampler.sample(logits, numbers, filters)

    def _kind(self, row: int) -> int:
        """Return the kind of sampling of a row: GREEDY, AMONG_FEW, AMONG_MANY or UNFILTERED."""
        if self._temperature[row] < GREEDY_TEMPERATURE or self._top_k[row] == 1:
            return GREEDY
        limited = self._top_k[row] < self._vocab_size or self._top_p[row] < 1 or self._min_p[row] > 0
        if not limited:
            return UNFILTERED
        return AMONG_FEW if self._top_k[row] <= self._token_sampler.small_top_k else AMONG_MANY

    def _take_largest(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the most likely token of each row. Of equally likely tokens, returns the first."""
        if self._staging.is_shared:  # numpy's argmax is vectorized, torch's is not
            return torch.from_numpy(logits.numpy().argmax(axis=-1))
        return logits.argmax(dim=-1)
