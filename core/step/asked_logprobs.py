"""Computes the log probabilities that requests ask for, in the steps that sample or score their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from llmfw.core.base.step import Ints, RowStart, ScoredPrompt

from .device.staging import Staging
from .pending import Scores
from .sampling.logprobs import RowLogprobs, num_top_tokens, table_width

NOT_ASKED = -1


@dataclass(frozen=True, slots=True)
class AskingTokens:
    """Sampled tokens of a step whose log probabilities are computed together.

    Attributes:
        k: number of most likely tokens to compute.
        indices: index of each token among the S sampled tokens, on the host: [R].
        places: `indices` on the device.
        given_ids: tokens that each token's request names: [R]; empty if the request names no tokens.
        given: `given_ids` on the device, padded: [R, m]; None: no request names tokens.
        logits: the model's own logits: [R, vocab].
    """

    k: int
    indices: Ints
    places: torch.Tensor
    given_ids: Sequence[list[int]]
    given: torch.Tensor | None
    logits: torch.Tensor


class AskedLogprobs:
    """Tracks and computes the log probabilities that the sequence in each page table row requests.

    Args:
        num_rows: number of rows.
        vocab_size: width of the logits.
        staging: sends arrays to the device.
    """

    def __init__(self, num_rows: int, vocab_size: int, staging: Staging) -> None:
        self._vocab_size = vocab_size
        self._staging = staging
        self._num_top = np.full(num_rows, NOT_ASKED, dtype=np.int64)
        self._num_prompt_top = np.full(num_rows, NOT_ASKED, dtype=np.int64)
        self._constrained = np.zeros(num_rows, dtype=np.bool_)  # after adjustments and masks
        self._given: dict[int, list[int]] = {}  # by row
        self._prompt_given: dict[int, list[int]] = {}
        self._rows_that_ask: set[int] = set()  # for sampled tokens

    def start(self, start: RowStart) -> None:
        """Record which log probabilities a sequence requests. Called when the sequence gets its row."""
        row = start.row
        for column, asked in (
            (self._num_top, start.logprobs),
            (self._num_prompt_top, start.prompt_logprobs),
        ):
            column[row] = NOT_ASKED if asked is None else asked
        for named, ids in (
            (self._given, start.logprob_token_ids),
            (self._prompt_given, start.prompt_logprob_token_ids),
        ):
            named.pop(row, None)
            if ids:
                named[row] = list(ids)
        self._constrained[row] = start.constrained_logprobs
        if start.logprobs is None:
            self._rows_that_ask.discard(row)
        else:
            self._rows_that_ask.add(row)

    def before_sampling(self, logits: torch.Tensor, rows: Ints) -> list[AskingTokens]:
        """Return the tokens whose log probabilities are requested, with the logits that sampling may change.

        Args:
            logits: logits from which to sample: [S, vocab].
            rows: row of each token to sample: [S].
        """
        groups = self._groups(rows) if self._rows_that_ask else []
        if not groups:
            return []
        given_ids = [[self._given[int(rows[i])] for i in each] if m else [] for (_, m), each in groups]
        tables = [_table(ids, m) for ((_, m), _), ids in zip(groups, given_ids, strict=True) if m]
        sent = iter(self._staging.send(*(each for _, each in groups), *tables))
        places = [next(sent) for _ in groups]
        return [
            AskingTokens(k, each, chosen, ids, next(sent) if m else None, logits[chosen])
            for ((k, m), each), chosen, ids in zip(groups, places, given_ids, strict=True)
        ]

    def scores(
        self, asking: Sequence[AskingTokens], logits: torch.Tensor, rows: Ints, tokens: torch.Tensor
    ) -> list[Scores]:
        """Start to compute the log probabilities of sampled tokens.

        Args:
            asking: result of `before_sampling` for the step.
            logits: logits after sampling: [S, vocab].
            rows: row of each sampled token: [S].
            tokens: the sampled tokens, on the device: [S].
        """
        found = []
        for each in asking:
            own = rows[each.indices]
            after = np.flatnonzero(self._constrained[own])
            if len(after):
                at, among = self._staging.send(after, each.indices[after])
                each.logits[at] = logits[among]
            logprobs = RowLogprobs.of(each.logits, tokens[each.places], each.k, each.given)
            found.append(Scores(own.tolist(), self._num_top[own].tolist(), logprobs, each.given_ids))
        return found

    def prompt_scores(self, scored: Sequence[ScoredPrompt], logits: torch.Tensor) -> list[Scores]:
        """Start to compute the log probabilities of prompt tokens.

        Args:
            scored: pieces of prompts that the step scores.
            logits: logits that score the tokens of all pieces, in the model's dtype: [P, vocab].
        """
        pieces = logits.split([len(each.token_ids) for each in scored])
        given_ids = [self._prompt_given.get(each.row, []) for each in scored]
        tables = [_table([ids], len(ids)) for ids in given_ids if ids]
        sent = iter(self._staging.send(*(each.token_ids for each in scored), *tables))
        tokens = [next(sent) for _ in scored]
        found = []
        for each, piece, ids, named in zip(scored, pieces, tokens, given_ids, strict=True):
            k, num = int(self._num_prompt_top[each.row]), len(ids)
            given = next(sent).expand(num, -1) if named else None
            logprobs = RowLogprobs.of(piece, ids, k, given)
            found.append(Scores([each.row] * num, [k] * num, logprobs, [named] * num if named else ()))
        return found

    def _groups(self, rows: Ints) -> list[tuple[tuple[int, int], Ints]]:
        """Return the indices of sampled tokens that need log probabilities, grouped by the requested numbers.

        The numbers of most likely tokens and of given tokens are rounded up (`num_top_tokens`,
        `table_width`), so that there are few groups and thus few operations.

        Returns:
            For each group: number of most likely tokens, width of the table of given tokens, indices.
        """
        wanted = self._num_top[rows]
        asking: dict[tuple[int, int], list[int]] = {}
        for place in np.flatnonzero(wanted != NOT_ASKED).tolist():
            k = num_top_tokens(int(wanted[place]), self._vocab_size)
            width = table_width(len(self._given.get(int(rows[place]), ()))) if self._given else 0
            asking.setdefault((k, width), []).append(place)
        return [(key, np.array(places, dtype=np.int64)) for key, places in asking.items()]


def _table(given_ids: Sequence[list[int]], width: int) -> Ints:
    """Return token ids as a table, padded with zeros: [R, width]."""
    table = np.zeros((len(given_ids), width), dtype=np.int64)
    for row, ids in zip(table, given_ids, strict=True):
        row[: len(ids)] = ids
    return table
