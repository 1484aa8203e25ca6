"""Checks that an executor can compute a step that comes from a file or another process.

An executor trusts the scheduler: it uses rows, pages and positions as indices into memory without checking
them. A step from a file may hold any numbers, and a single wrong page number can crash the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .request import MAX_LOGPROB_TOKEN_IDS
from .step import (
    NOT_IN_FLIGHT,
    RowCounts,
    RowStart,
    RowTokens,
    ScoredPrompt,
    StepInput,
    StepOutput,
    TokenMasks,
)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Sizes of an executor.

    Attributes:
        num_rows: number of rows of the page table.
        num_pages: number of pages of the KV cache.
        page_size: number of tokens in a page.
        max_len: maximum length of a sequence, in tokens.
        vocab_size: width of the logits.
        num_snapshots: number of slots for snapshots of states, beyond the rows.
        num_adapters: number of slots that hold adapters.
    """

    num_rows: int
    num_pages: int
    page_size: int
    max_len: int
    vocab_size: int
    num_snapshots: int = 0
    num_adapters: int = 0

    @property
    def width(self) -> int:
        """Number of columns of the page table."""
        return -(-self.max_len // self.page_size)


def check_step(step: StepInput, limits: StepLimits) -> None:
    """Raise ValueError if an executor with these limits cannot compute a step.

    The message names the column and its value.
    """
    for name in ("tokens", "sources", "rows", "starts", "counts", "num_sampled", "page_places", "adapters"):
        _check_column(name, getattr(step, name), np.int64)
    _check_column("pages", step.pages, np.int32)
    _check_images(step)
    _check_sizes(step)
    _check_range("tokens", step.tokens, 0, limits.vocab_size - 1)
    _check_range("sources", step.sources, NOT_IN_FLIGHT, limits.num_rows - 1)
    _check_range("rows", step.rows, 0, limits.num_rows - 1)
    _check_range("page_places", step.page_places, 0, limits.num_rows * limits.width - 1)
    _check_range("pages", step.pages, 0, limits.num_pages - 1)
    if len(np.unique(step.rows)) != len(step.rows):
        raise ValueError("rows holds a row twice")
    _check_range("adapters", step.adapters, 0, limits.num_adapters)
    _check_pieces(step, limits)
    _check_ends(step)
    _check_states(step, limits)
    for start in step.row_starts:
        _check_row_start(start, limits)
    for counts in step.row_counts:
        _check_row_counts(counts, limits)
    for tokens in step.row_tokens:
        _check_row_tokens(tokens, limits)
    for scored in step.scored:
        _check_scored(scored, step.num_tokens, limits)


def check_masks(masks: TokenMasks, step: StepInput, limits: StepLimits) -> None:
    """Raise ValueError if masks do not fit a step, or if a mask forbids every token.

    The step must have passed `check_step`.
    """
    num_sampled, width = int(step.num_sampled.sum()), -(-limits.vocab_size // 32)
    _check_range("places", masks.places, 0, num_sampled - 1)
    if masks.words.dtype != np.int32 or masks.words.shape != (len(masks.places), width):
        raise ValueError(
            f"words of its masks are {masks.words.dtype} {list(masks.words.shape)}; they must be int32 "
            f"{[len(masks.places), width]}"
        )
    bits = np.unpackbits(masks.words.view(np.uint8), axis=1, bitorder="little")[:, : limits.vocab_size]
    if not bits.any(axis=1).all():
        raise ValueError("a mask forbids every token")


def check_output(output: StepOutput, step: StepInput, limits: StepLimits) -> None:
    """Raise ValueError unless an output has one valid token id for each token that the step samples."""
    num_sampled = int(step.num_sampled.sum())
    if len(output.token_ids) != num_sampled:
        raise ValueError(f"its output has {len(output.token_ids)} tokens, and {num_sampled} are sampled")
    _check_range("the output's token_ids", output.token_ids, 0, limits.vocab_size - 1)


def _check_column(name: str, column: npt.NDArray[Any], dtype: type) -> None:
    if column.dtype != dtype or column.ndim != 1:
        raise ValueError(
            f"{name} is {column.dtype} {list(column.shape)}; it must be one column of {np.dtype(dtype)}"
        )


def _check_sizes(step: StepInput) -> None:
    for name in ("starts", "counts", "num_sampled"):
        _check_equal(f"{name} has %d entries, and rows has %d", len(getattr(step, name)), len(step.rows))
    if len(step.adapters):
        _check_equal("adapters has %d entries, and rows has %d", len(step.adapters), len(step.rows))
    _check_equal("sources has %d entries, and tokens has %d", len(step.sources), step.num_tokens)
    _check_equal("page_places has %d entries, and pages has %d", len(step.page_places), len(step.pages))
    if not len(step.rows):
        raise ValueError("it computes no token")


def _check_images(step: StepInput) -> None:
    """Check which image rows the tokens of a step take, and the rotary positions of the step."""
    if step.rotary.size and (step.rotary.dtype != np.int64 or step.rotary.shape != (3, step.num_tokens)):
        raise ValueError(
            f"rotary is {step.rotary.dtype} {list(step.rotary.shape)}; it must be int64 {[3, step.num_tokens]}"
        )
    _check_range("rotary", step.rotary.flatten(), 0, 2**31 - 1)
    for part in step.images.parts:
        _check_column("images.parts.places", part.places, np.int64)
        _check_column("images.parts.rows", part.rows, np.int64)
        _check_equal("images.parts.places has %d entries, and rows has %d", len(part.places), len(part.rows))
        _check_range("images.parts.places", part.places, 0, step.num_tokens - 1)
        _check_range("images.parts.rows", part.rows, 0, 2**31 - 1)


def _check_ends(step: StepInput) -> None:
    """Check that no token attends beyond the tokens of its sequence."""
    if not len(step.ends):
        return
    _check_column("ends", step.ends, np.int64)
    _check_equal("ends has %d entries, and tokens has %d", len(step.ends), step.num_tokens)
    lengths = np.repeat(step.kv_lens, step.counts)
    if (wrong := (step.ends <= step.positions) | (step.ends > lengths)).any():
        raise ValueError(f"ends has {step.ends[wrong][0]} for the token at {step.positions[wrong][0]}")


def _check_pieces(step: StepInput, limits: StepLimits) -> None:
    """Check how many tokens of each sequence are computed and sampled, and where they are."""
    _check_range("counts", step.counts, 1, step.num_tokens)
    _check_equal("counts add up to %d, and tokens has %d entries", int(step.counts.sum()), step.num_tokens)
    _check_range("starts", step.starts, 0, limits.max_len - 1)
    _check_range("starts + counts", step.kv_lens, 1, limits.max_len)
    _check_range("num_sampled", step.num_sampled, 0, step.num_tokens)
    if (step.num_sampled > step.counts).any():
        raise ValueError("num_sampled is larger than counts for a sequence")
    sampling = int(np.count_nonzero(step.num_sampled))
    _check_equal("num_sampling is %d, and %d sequences sample", step.num_sampling, sampling)
    if not 0 <= step.num_single <= len(step.rows) or (step.counts[: step.num_single] != 1).any():
        raise ValueError(
            f"num_single is {step.num_single}; it must be the number of first sequences with one token"
        )


def _check_row_start(start: RowStart, limits: StepLimits) -> None:
    _check_range("row_starts.row", [start.row], 0, limits.num_rows - 1)
    _check_range("row_starts.prompt_len", [start.prompt_len], 0, limits.max_len)
    _check_range("row_starts.stop_token_ids", start.stop_token_ids, 0, limits.vocab_size - 1)
    _check_range("row_starts.sampling.logit_bias", start.sampling.logit_bias, 0, limits.vocab_size - 1)
    _check_range(
        "row_starts.sampling.allowed_token_ids", start.sampling.allowed_token_ids, 0, limits.vocab_size - 1
    )
    for word in start.sampling.bad_words:
        _check_range("row_starts.sampling.bad_words", word, 0, limits.vocab_size - 1)
    _check_range("row_starts.sampling.min_tokens", [start.sampling.min_tokens], 0, limits.max_len)
    for name in ("logprobs", "prompt_logprobs"):
        if (asked := getattr(start, name)) is not None:
            _check_range(f"row_starts.{name}", [asked], 0, limits.vocab_size)
    for name in ("logprob_token_ids", "prompt_logprob_token_ids"):
        given = getattr(start, name)
        _check_range(f"row_starts.{name}", given, 0, limits.vocab_size - 1)
        _check_range(f"the length of row_starts.{name}", [len(given)], 0, MAX_LOGPROB_TOKEN_IDS)


def _check_row_counts(counts: RowCounts, limits: StepLimits) -> None:
    _check_range("row_counts.row", [counts.row], 0, limits.num_rows - 1)
    _check_column("row_counts.token_ids", counts.token_ids, np.int64)
    _check_column("row_counts.counts", counts.counts, np.int64)
    _check_equal(
        "row_counts.token_ids has %d entries, and its counts %d", len(counts.token_ids), len(counts.counts)
    )
    _check_range("row_counts.token_ids", counts.token_ids, 0, limits.vocab_size - 1)
    _check_range("row_counts.counts", counts.counts, 0, limits.max_len)


def _check_row_tokens(tokens: RowTokens, limits: StepLimits) -> None:
    _check_range("row_tokens.row", [tokens.row], 0, limits.num_rows - 1)
    _check_column("row_tokens.token_ids", tokens.token_ids, np.int32)
    _check_range("row_tokens.token_ids", tokens.token_ids, 0, limits.vocab_size - 1)
    _check_range("the length of row_tokens.token_ids", [len(tokens.token_ids)], 0, limits.max_len)


def _check_scored(scored: ScoredPrompt, num_tokens: int, limits: StepLimits) -> None:
    _check_range("scored.row", [scored.row], 0, limits.num_rows - 1)
    _check_column("scored.token_ids", scored.token_ids, np.int64)
    _check_range("scored.token_ids", scored.token_ids, 0, limits.vocab_size - 1)
    _check_range("scored.first", [scored.first], 0, num_tokens - len(scored.token_ids))


def _check_states(step: StepInput, limits: StepLimits) -> None:
    """Check which states are copied, and when."""
    copies = step.states
    for name in ("sources", "targets", "places", "positions", "slots"):
        _check_column(f"states.{name}", getattr(copies, name), np.int64)
    for one, other in (("targets", "sources"), ("positions", "places"), ("slots", "places")):
        sizes = len(getattr(copies, one)), len(getattr(copies, other))
        _check_equal(f"states.{one} has %d entries, and states.{other} has %d", *sizes)
    last = limits.num_rows + limits.num_snapshots - 1 if limits.num_snapshots else -1
    _check_range("states.sources", copies.sources, 0, last)
    _check_range("states.targets", copies.targets, 0, last)
    _check_range("states.slots", copies.slots, limits.num_rows, last)
    _check_range("states.places", copies.places, 0, len(step.rows) - 1)
    starts, ends = step.starts[copies.places], step.kv_lens[copies.places]
    if (wrong := (copies.positions <= starts) | (copies.positions > ends)).any():
        raise ValueError(
            f"states.positions has {copies.positions[wrong][0]}; it must be {starts[wrong][0] + 1} to {ends[wrong][0]}"
        )
    pairs = list(zip(copies.places.tolist(), copies.positions.tolist(), strict=True))
    if pairs != sorted(set(pairs)):
        raise ValueError("states.places and states.positions must ascend")


def _check_equal(text: str, one: int, other: int) -> None:
    if one != other:
        raise ValueError(text % (one, other))


def _check_range(name: str, values: Iterable[int], least: int, most: int) -> None:
    """Raise ValueError if a value is out of range. The message has the first such value."""
    if isinstance(values, np.ndarray):
        wrong = values[(values < least) | (values > most)][:1].tolist()
    else:
        wrong = [value for value in values if not least <= value <= most][:1]
    if wrong:
        raise ValueError(f"{name} has {wrong[0]}; it must be {least} to {most}")
