"""The logits processor `dry`: Don't Repeat Yourself (p-e-w, 2024), as in text-generation-webui and llama.cpp.

    … the cat sat on the | mat …        "mat" came after these tokens before
    … the cat sat on the ?              a repetition of 5 tokens: "mat" gets a penalty

If the last n tokens occurred before, the token that came after them then gets the penalty
multiplier × base ** (n - allowed length), unless n is less than the allowed length. If several places match,
the largest n counts. A repetition contains no sequence breaker, and a breaker gets no penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from llmfw.core import LogitsProcessor, ProcessedRequest, ProcessedRows, ProcessorContext, RequestError

from .breakers import Breakers

DEFAULT_BASE = 1.75
DEFAULT_ALLOWED_LENGTH = 2

MAX_PENALTY = 1e30
"""Largest penalty. A larger one could become infinity in float32, and forbid a token."""

SLICE_ELEMENTS = 1 << 24
"""Maximum number of token comparisons that are computed at once."""


@dataclass(frozen=True, slots=True)
class DRYArguments:
    """Arguments of a request.

    Attributes:
        penalties: penalty for a repetition of each length, 0 to the maximum length.
        breakers: whether each token is a breaker, on the device: [vocab].
        last_n: number of last tokens to search for repetitions; -1: all.
    """

    penalties: npt.NDArray[np.float32]
    breakers: torch.Tensor
    last_n: int


class DRY(LogitsProcessor):
    """Makes tokens that would continue a repetition less likely."""

    needs_tokens = True
    conformance: ClassVar = {
        "asking": [
            {"dry_multiplier": 0.8},
            {"dry_multiplier": 2.0, "dry_base": 3.0, "dry_allowed_length": 1, "dry_sequence_breakers": []},
            {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_penalty_last_n": 12},
            {"dry_multiplier": 3.0, "dry_base": 100.0, "dry_sequence_breakers": ["an", " ", "\u6f22"]},
        ],
        "silent": [
            {},
            {"dry_multiplier": 0.0},
            {"dry_base": 2.0},
            {"dry_multiplier": 1.0, "dry_penalty_last_n": 0},
        ],
    }

    class Options(LogitsProcessor.Options, frozen=True):
        """
        Attributes:
            max_length: maximum length of a repetition, in tokens. Longer ones get the penalty of this length. The
                time for a step grows with it.
        """

        max_length: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50

    options: Options

    def __init__(self, context: ProcessorContext, options: Options) -> None:
        super().__init__(context, options)
        self._breakers = Breakers(context)

    def begin(self, request: ProcessedRequest) -> DRYArguments | None:
        fields = request.fields
        multiplier, last_n = (
            float(fields.get("dry_multiplier", 0.0)),
            int(fields.get("dry_penalty_last_n", -1)),
        )
        if not multiplier or not last_n:
            return None
        base = float(fields.get("dry_base", DEFAULT_BASE))
        allowed = int(fields.get("dry_allowed_length", DEFAULT_ALLOWED_LENGTH))
        most = self.options.max_length
        if allowed > most:
            raise RequestError(
                f"dry_allowed_length is {allowed}; this server compares at most {most} tokens "
                "(-o logits_processor.dry.max_length)",
                param="dry_allowed_length",
            )
        texts = fields.get("dry_sequence_breakers")
        breakers = self._breakers.default if texts is None else self._breakers.mask(texts)
        return DRYArguments(penalties_of(multiplier, base, allowed, most), breakers, last_n)

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        states: Sequence[DRYArguments] = rows.states
        masks = {id(state.breakers): state.breakers for state in states}  # most requests share one mask
        last_n = np.array([state.last_n for state in states], dtype=np.int64)
        ends, starts, penalties, which = rows.send(
            rows.positions,
            np.where(last_n < 0, 0, np.maximum(rows.positions - last_n, 0)),
            np.stack([state.penalties for state in states]),
            np.array([list(masks).index(id(state.breakers)) for state in states], dtype=np.int64),
        )
        tokens = rows.tokens()
        is_outside = torch.arange(tokens.shape[1], device=tokens.device) < starts[:, None]
        tokens.masked_fill_(is_outside, -1)
        are_breakers = torch.stack(list(masks.values()))[which[:, None], tokens.clamp_min(0)]
        following, lengths = repetitions(tokens, ends, are_breakers, self.options.max_length)
        # A token may follow several repetitions. The longest counts, so all its places get the same result.
        longest = torch.zeros(logits.shape, dtype=torch.int32, device=logits.device)
        longest.scatter_reduce_(1, following, lengths, "amax")
        penalty = penalties.gather(1, longest.gather(1, following).long())
        return logits.scatter_(1, following, logits.gather(1, following) - penalty)


def penalties_of(
    multiplier: float, base: float, allowed_length: int, max_length: int
) -> npt.NDArray[np.float32]:
    """Return the penalty for a repetition of each length, from 0 to `max_length`."""
    excess = np.arange(max_length + 1, dtype=np.float64) - allowed_length
    with np.errstate(over="ignore"):  # infinity is more than MAX_PENALTY, too
        found = np.where(excess < 0, 0.0, multiplier * base ** np.maximum(excess, 0))
    return np.minimum(found, MAX_PENALTY).astype(np.float32)


def repetitions(
    tokens: torch.Tensor, ends: torch.Tensor, are_breakers: torch.Tensor, max_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the token after each place, and the length of its repetition: [R, W - 1] each.

    The length is the number of tokens of the repetition that the token would continue.

    Tokens without a penalty have the length 0. Places without a following token have token 0, length 0.

    Args:
        tokens: tokens so far; -1 for places without a token, and for tokens that do not count: [R, W].
        ends: number of tokens of each row, including tokens that do not count: [R].
        are_breakers: whether each token is a breaker: [R, W].
        max_length: upper bound of the lengths.
    """
    is_none = (tokens < 0) | are_breakers
    # Places that do not count must match nothing, so they have different numbers in the two tensors.
    history, own = tokens.masked_fill(is_none, -2), tokens.masked_fill(is_none, -1)
    places = ends[:, None] - 1 - torch.arange(max_length, device=tokens.device)  # the last token first
    last = own.gather(1, places.clamp_min(0)).masked_fill(places < 0, -1)
    following = history[:, 1:]
    lengths = match_lengths(history, last)[:, :-1].masked_fill(following < 0, 0)
    return following.clamp_min(0), lengths


def match_lengths(history: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Return, for each place, how many consecutive tokens up to it equal the last tokens, int32: [R, W].

    Args:
        history: tokens: [R, W].
        last: last tokens, the last one first: [R, L].
    """
    num_rows, num_places = history.shape
    most = last.shape[1]
    windows = torch.nn.functional.pad(history, (most - 1, 0), value=-2).unfold(1, most, 1)  # [R, W, L]
    last = last.flip(1)[:, None]
    nearness = torch.arange(1, most + 1, dtype=torch.int16, device=history.device)
    size = max(1, SLICE_ELEMENTS // (num_rows * most))
    nearest = [
        torch.where(windows[:, first : first + size] == last, 0, nearness).amax(dim=-1)
        for first in range(0, num_places, size)
    ]  # nearness of the nearest token that differs, 0 if all are equal
    return most - torch.cat(nearest, dim=1).int()
