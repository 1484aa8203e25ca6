"""The scheduler's state of one request: its tokens, pages and status.

    token_ids   [ prompt ............................ | output ........ ]  and up to one token in flight
    storage     [ computed .............................. )               keys and values are in pages
    pages       [ shared: the prefix cache's | own ...... )

`num_computed` counts the tokens whose keys and values are in pages, or will be once all launched steps have
run. A token in flight has been sampled on the device but not read back, so its value is unknown here (see the
overlapped loop).

The sequence's numbers are columns of the `SequenceTable`. Only the scheduler changes the status, and only
`SequencePages` changes the pages. The output's constraint and the prompt's known log probabilities survive a
retraction.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.request import FinishReason, Request
from llmfw.core.base.step import NO_PROCESSORS, AskedProcessors

from .constraint import Constraint
from .prompt_logprobs import PromptLogprobs
from .sequence_media import SequenceMedia
from .sequence_table import COUNTS, TOKENS, Number, SequenceTable

if TYPE_CHECKING:
    import numpy.typing as npt

    from .cache.prefix_cache import CacheNode, Subscription


class Status(enum.Enum):
    """Status of a sequence. A retracted sequence is WAITING again."""

    WAITING = 1
    RUNNING = 2
    FINISHED = 3


class SequenceState:
    """Tokens, pages and status of one request.

    Args:
        request: the client's request; `sampling.max_tokens` is set.
        arrival: position in the order of arrival.
        constraint: constraint of the output; None: no constraint.
        table: table for the sequence's numbers; None: a new table for this sequence alone.
        processors: logits processors that the request uses.

    Attributes:
        output: known output tokens.
        num_cached_first: number of cached prompt tokens at the first admission; None before the first step.
        queued_us: microseconds from arrival to the first step.
        is_cut: whether the prompt is computed in small pieces while other sequences decode. True if the
            prompt exceeds one step's token budget, or if the prompt's log probabilities are requested, which
            cost more.
        is_plain: whether the sequence has output, has no constraint, and reports no log probabilities.
        media: images of the prompt; None: the prompt has no images.
        subscription: the prefix cache's subscription of the prompt while the sequence waits or computes its
            prompt.
    """

    __slots__ = (
        "cache_node",
        "constraint",
        "finish_reason",
        "id",
        "index",
        "is_cut",
        "is_plain",
        "max_tokens",
        "media",
        "num_cached_first",
        "output",
        "processors",
        "prompt",
        "prompt_len",
        "prompt_logprobs",
        "queued_us",
        "request",
        "status",
        "stop_token_ids",
        "subscription",
        "table",
    )

    arrival = Number()
    length = Number()
    num_in_flight = Number()
    num_computed = Number()
    num_pages = Number()
    num_shared_pages = Number()
    row = Number()
    is_new = Number()
    tenant = Number()
    last_token = Number()
    num_counted = Number()

    def __init__(
        self,
        request: Request,
        arrival: int,
        constraint: Constraint | None = None,
        table: SequenceTable | None = None,
        processors: AskedProcessors = NO_PROCESSORS,
    ) -> None:
        assert request.sampling.max_tokens is not None
        self.request = request
        self.id = request.id
        self.constraint = constraint
        self.processors = processors
        self.prompt = np.asarray(request.prompt, dtype=np.int32)
        self.prompt_len = len(self.prompt)
        self.output: list[int] = list(request.output)
        self.max_tokens: int = request.sampling.max_tokens
        self.stop_token_ids = _one_set(request.eos_token_ids, request.sampling.stop_token_ids)
        asks = request.prompt_logprobs is not None
        self.prompt_logprobs = (
            PromptLogprobs(self.prompt_len, request.prompt_logprobs_start) if asks else None
        )
        self.num_cached_first: int | None = None
        self.queued_us = 0
        self.cache_node: CacheNode | None = None
        self.subscription: Subscription | None = None
        self.is_cut = False
        self.is_plain = bool(self.output) and constraint is None and request.logprobs is None
        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None
        self.media = SequenceMedia(self.prompt, request.media) if request.media else None
        self.table = table = SequenceTable(1) if table is None else table
        self.index = index = table.add(self)
        table.arrival[index] = arrival
        table.priority[index] = request.priority
        table.prompt_len[index] = self.prompt_len
        table.max_len[index] = self.prompt_len + self.max_tokens
        table.deadline[index] = math.inf
        table.tracking[index] = COUNTS * request.sampling.has_penalties + TOKENS * processors.need_tokens
        table.is_scored[index] = asks
        table.length[index] = self.prompt_len + len(self.output)
        table.row[index] = -1
        if self.output:
            table.last_token[index] = self.output[-1]
        if self.media:
            table.shift[index] = self.media.shift

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """The known tokens, prompt and output: [num_tokens]."""
        if not self.output:
            return self.prompt
        return np.concatenate([self.prompt, np.array(self.output, dtype=np.int32)])

    @property
    def cache_ids(self) -> npt.NDArray[np.int32]:
        """The known tokens with image tokens replaced by numbers for the prefix cache (see `base.media`)."""
        if self.media is None:
            return self.token_ids
        return np.concatenate([self.media.cache_ids, np.array(self.output, dtype=np.int32)])

    @property
    def output_ids(self) -> npt.NDArray[np.int32]:
        """The known output tokens: [num_output]."""
        return np.array(self.output, dtype=np.int32)

    @property
    def num_output(self) -> int:
        """Number of known output tokens."""
        return len(self.output)

    @property
    def num_tokens(self) -> int:
        """Number of known tokens, prompt and output."""
        return self.prompt_len + len(self.output)

    @property
    def num_remaining(self) -> int:
        """Number of tokens, known or in flight, that are neither computed nor part of a launched step."""
        return self.length - self.num_computed

    @property
    def num_to_come(self) -> int:
        """Maximum number of output tokens still to sample, not counting tokens in flight."""
        return self.prompt_len + self.max_tokens - self.length

    @property
    def awaits_end(self) -> bool:
        """Whether the last token that the sequence may generate is in flight."""
        return self.num_in_flight > 0 and self.num_to_come <= 0

    @property
    def num_reusable(self) -> int:
        """Number of leading tokens that need not be computed if their keys and values are cached.

        The last token must be computed for its logits. Tokens whose prompt log probabilities are missing must
        also be computed.
        """
        prompt = self.prompt_logprobs
        if prompt is not None and not prompt.is_complete:
            return prompt.num_known
        return self.num_tokens - 1

    @property
    def jump_token(self) -> int | None:
        """The next token if the constraint forces it and it can be appended without sampling, else None.

        A token is appended without sampling only if no token is in flight and the request does not ask for
        log probabilities.
        """
        if self.constraint is None or self.num_in_flight or self.request.logprobs is not None:
            return None
        return self.constraint.forced[0] if self.constraint.forced else None

    def tokens(self, start: int, end: int) -> npt.NDArray[np.int32] | list[int]:
        """Return the known tokens at positions [start, end)."""
        if start >= self.prompt_len:
            return self.output[start - self.prompt_len : end - self.prompt_len]
        return self.prompt[start:end] if end <= self.prompt_len else self.token_ids[start:end]

    def append(self, token_id: int) -> None:
        """Append an output token that was not in flight."""
        self.output.append(token_id)
        self.last_token = token_id
        self.length += 1

    def finish_reason_now(self) -> FinishReason | None:
        """Return the reason why the sequence ends with its last known token; None if it continues."""
        has_ended = self.constraint is not None and self.constraint.has_ended
        may_end = has_ended or self.num_output >= self.request.sampling.min_tokens
        if self.output[-1] in self.stop_token_ids and may_end:
            was_hastened = self.constraint is not None and has_ended and self.constraint.is_hastened
            return FinishReason.LENGTH if was_hastened else FinishReason.STOP
        if self.num_output >= self.max_tokens:
            return FinishReason.LENGTH
        return None


@functools.lru_cache(maxsize=256)
def _one_set(eos_token_ids: tuple[int, ...], stop_token_ids: tuple[int, ...]) -> frozenset[int]:
    """Return the set of tokens that end an output.

    Equal sets are the same object, so that many sequences share the same entries of the CPU's cache.
    """
    return frozenset(eos_token_ids) | frozenset(stop_token_ids)
