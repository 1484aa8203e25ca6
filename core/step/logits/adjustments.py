"""Adjusts logits before sampling as requests specify.

The order is: penalties, logit bias and banned tokens, allowed tokens, then `min_tokens`.

All rows are adjusted together, with the same number of operations as for one row. Only the logits of affected
tokens change: tokens of the prompt and output, biased tokens and stop tokens. The counts of generated tokens
are on the device, so that the next token can be sampled before the last one reaches the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.request import SamplingParams
from llmfw.core.base.step import NO_INTS, Ints, RowCounts, RowStart

from ..device.staging import Staging
from .token_counts import Entries, TokenCounts

Bias = tuple[Ints, npt.NDArray[np.float32]]

PENALTIES, BIAS, HOLD, ALLOW = 1, 2, 4, 8
"""Flags of the adjustments that a request needs. HOLD: stop tokens are forbidden until `min_tokens`. ALLOW:
most tokens are forbidden."""


@dataclass(frozen=True, slots=True)
class Penalized:
    """The P sequences of a step that have penalties.

    Attributes:
        rows: page table rows of the sequences, on the host: [P].
        places: indices of the sequences' logits in the batch, on the device: [P].
        entries: the sequences' tokens, and how often each was generated.
    """

    rows: Ints
    places: torch.Tensor
    entries: Entries


class Adjustments:
    """Adjusts logits as requests specify.

    Args:
        max_rows: maximum number of running sequences.
        staging: sends arrays to the device.
        device: device of the logits.
    """

    def __init__(self, max_rows: int, staging: Staging, device: torch.device) -> None:
        self._staging = staging
        self._lowest = torch.full((), float("-inf"), dtype=torch.float32, device=device)
        self._asked = np.zeros(max_rows, dtype=np.int8)  # sum of the flags PENALTIES, BIAS and HOLD
        self._counts = TokenCounts(max_rows, staging, device)
        self._repetition = np.ones(max_rows, dtype=np.float32)
        self._frequency_presence = np.zeros((2, max_rows), dtype=np.float32)
        self._may_end_at = np.zeros(
            max_rows, dtype=np.int64
        )  # position of the first token that may be a stop token
        self._stop_token_ids: dict[int, tuple[int, ...]] = {}
        self._biases: dict[int, Bias] = {}
        self._sent_bias: tuple[bytes, list[torch.Tensor]] = (b"", [])
        self._allowed: dict[int, Ints] = {}
        # The choices of a request arrive one after another, and share these fields of their parameters.
        self._last_bias: tuple[SamplingParams | None, Bias] = (None, (NO_INTS, np.empty(0, dtype=np.float32)))
        self._last_allowed: tuple[SamplingParams | None, Ints] = (None, NO_INTS)

    def start(self, start: RowStart) -> None:
        """Record the adjustments that a sequence needs, when it gets its row."""
        row, params = start.row, start.sampling
        self._repetition[row] = params.repetition_penalty
        self._frequency_presence[:, row] = params.frequency_penalty, params.presence_penalty
        holds = params.min_tokens > 0 and bool(start.stop_token_ids)
        self._may_end_at[row] = start.prompt_len + params.min_tokens
        self._stop_token_ids[row] = start.stop_token_ids
        if self._biases.pop(row, None):
            self._sent_bias = (b"", [])
        is_biased = bool(params.logit_bias or params.banned_token_ids)
        if is_biased:
            self._biases[row] = self._bias_of(params)
        self._allowed.pop(row, None)
        if params.allowed_token_ids:
            self._allowed[row] = self._allowed_of(params)
        asks = (params.has_penalties, is_biased, holds, bool(params.allowed_token_ids))
        self._asked[row] = sum(
            flag for flag, asked in zip((PENALTIES, BIAS, HOLD, ALLOW), asks, strict=True) if asked
        )

    def _bias_of(self, params: SamplingParams) -> Bias:
        last, bias = self._last_bias
        if last is not None and params.logit_bias is last.logit_bias and params.bad_words is last.bad_words:
            return bias
        biases = {**params.logit_bias, **dict.fromkeys(params.banned_token_ids, float("-inf"))}
        bias = np.fromiter(biases, np.int64), np.fromiter(biases.values(), np.float32)
        self._last_bias = params, bias
        return bias

    def _allowed_of(self, params: SamplingParams) -> Ints:
        last, allowed = self._last_allowed
        if last is None or params.allowed_token_ids is not last.allowed_token_ids:
            allowed = np.unique(np.array(params.allowed_token_ids, dtype=np.int64))
            self._last_allowed = params, allowed
        return allowed

    def recount(self, counts: Sequence[RowCounts]) -> None:
        """Replace the token counts of some rows."""
        if counts:
            rows = [each.row for each in counts]
            self._counts.write(rows, [(each.token_ids, each.counts) for each in counts])

    def apply(
        self, logits: torch.Tensor, rows: Ints, positions: Ints, masked: Sequence[int] = ()
    ) -> Penalized | None:
        """Adjust logits in place.

        Args:
            logits: logits of the tokens to sample: [S, vocab].
            rows: page table row of each sequence: [S].
            positions: position of each token to sample: [S].
            masked: indices into `logits` of the sequences whose mask already decides whether the output may
                end.

        Returns:
            The first argument for `count`; None if no sequence has penalties.
        """
        asked = self._asked[rows]
        if not np.count_nonzero(asked):
            return None
        by_any = int(np.bitwise_or.reduce(asked))
        penalized = None
        if by_any & PENALTIES:
            places = np.flatnonzero(asked & PENALTIES)
            penalized = self._penalize(logits, places, rows[places])
        if by_any & BIAS:
            places = np.flatnonzero(asked & BIAS)
            of_row, ids, values = self._bias(places, rows[places])
            logits.index_put_((of_row, ids), logits[of_row, ids] + values)
        if by_any & ALLOW:
            places = np.flatnonzero(asked & ALLOW)
            self._mask_not_allowed(logits, places, rows[places])
        if by_any & HOLD:
            held = (asked & HOLD).astype(np.bool_)
            held[list(masked)] = False
            self._mask_stop_tokens(logits, np.flatnonzero(held & (positions < self._may_end_at[rows])), rows)
        return penalized

    def count(self, penalized: Penalized, tokens: torch.Tensor) -> None:
        """Count the sampled tokens of sequences with penalties.

        Args:
            penalized: result of `apply`.
            tokens: sampled token of each row of the logits, on the device: [S].
        """
        self._counts.add(penalized.rows, penalized.entries, tokens.index_select(0, penalized.places))

    def _mask_stop_tokens(self, logits: torch.Tensor, places: Ints, rows: Ints) -> None:
        """Mask the stop tokens of sequences that must not end yet.

        Args:
            places: indices into `logits` of these sequences.
            rows: page table row of each sequence of the batch: [S].
        """
        stops = [
            (place, token) for place in places.tolist() for token in self._stop_token_ids[int(rows[place])]
        ]
        if stops:
            logits.index_put_(tuple(self._staging.send(*np.array(stops).T)), self._lowest)

    def _mask_not_allowed(self, logits: torch.Tensor, places: Ints, rows: Ints) -> None:
        """For sequences with `allowed_token_ids`, mask all tokens that are not listed there."""
        allowed = [self._allowed[row] for row in rows.tolist()]
        of_row = np.repeat(places, [len(ids) for ids in allowed])
        at, *kept = self._staging.send(places, of_row, np.concatenate(allowed))
        found = logits[tuple(kept)]
        logits.index_fill_(0, at, float("-inf"))
        logits.index_put_(tuple(kept), found)

    def _penalize(self, logits: torch.Tensor, places: Ints, rows: Ints) -> Penalized:
        """Apply penalties in place. Skips kinds of penalties that no sequence in the batch uses."""
        ends = self._counts.ends(rows)
        repetition, others = self._repetition[rows], self._frequency_presence[:, rows]
        has_others = bool(others.any())
        sent = self._staging.send(places, rows, ends, repetition, others)
        entries = self._counts.read(sent[1], sent[2], ends, with_counts=has_others)
        at = (sent[0][:, None], entries.ids)
        found = logits[at]
        if np.count_nonzero(repetition != 1):
            factor = sent[3][:, None]
            found = torch.where(found > 0, found / factor, found * factor)
        if entries.counts is not None:
            frequency, presence = sent[4][:, :, None]
            if np.count_nonzero(others[0]):
                found -= frequency * entries.counts
            if np.count_nonzero(others[1]):
                found -= presence * (entries.counts > 0)
        logits.index_put_(at, found)
        return Penalized(rows, sent[0], entries)

    def _bias(self, places: Ints, rows: Ints) -> list[torch.Tensor]:
        """Return the batch indices, token ids and values of all biases, on the device.

        The result is reused while the same sequences with biases run.
        """
        key = places.tobytes() + rows.tobytes()
        if self._sent_bias[0] != key:
            biases = [self._biases[row] for row in rows.tolist()]
            columns = [np.concatenate(parts) for parts in zip(*biases, strict=True)]
            of_row = np.repeat(places, [len(ids) for ids, _ in biases])
            self._sent_bias = key, self._staging.send(of_row, *columns)
        return self._sent_bias[1]
