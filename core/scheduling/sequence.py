"""A request while it runs.

    token_ids   [ prompt ............................ | output ........ ]  and up to one token in flight
    storage     [ computed .............................. )               keys and values are in pages
    pages       [ shared: the prefix cache's | own ...... )

`num_computed` counts what the steps launched so far have put, or will have put, into pages. A token in flight has
been launched but not read back: its value is known to the device only (see `Engine`'s overlapped loop).

The scheduler changes the status, `SequencePages` changes the pages; nothing else writes here. What constrains the
output, and what is known of the prompt's log probabilities, has a sequence's life: a retraction leaves it alone.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from ..request import FinishReason, Request
from .constraint import Constraint
from .prompt_logprobs import PromptLogprobs

if TYPE_CHECKING:
    import numpy.typing as npt

    from .prefix_cache import CacheNode


class Status(enum.Enum):
    """Where a sequence is in its life. A retracted sequence is WAITING again."""

    WAITING = 1
    RUNNING = 2
    FINISHED = 3


class SequenceState:
    """Tokens, pages and status of one request.

    Args:
        request: what the client asked for; `sampling.max_tokens` is set.
        arrival: position in the order of arrival.
        constraint: what its output may be; None: anything.
    """

    __slots__ = (
        "_tokens",
        "arrival",
        "cache_node",
        "constraint",
        "finish_reason",
        "max_tokens",
        "num_cached",
        "num_computed",
        "num_in_flight",
        "num_pages",
        "num_shared_pages",
        "num_tokens",
        "prompt_len",
        "prompt_logprobs",
        "request",
        "row",
        "status",
        "stop_token_ids",
    )

    def __init__(self, request: Request, arrival: int, constraint: Constraint | None = None) -> None:
        assert request.sampling.max_tokens is not None
        self.request = request
        self.arrival = arrival
        self.constraint = constraint
        self.prompt_len = len(request.prompt)
        self.max_tokens: int = request.sampling.max_tokens
        self.stop_token_ids = frozenset(request.eos_token_ids) | frozenset(request.sampling.stop_token_ids)
        self._tokens = np.array(request.prompt, dtype=np.int32)
        self.num_tokens = self.prompt_len
        self.prompt_logprobs = (
            PromptLogprobs(self.prompt_len) if request.prompt_logprobs is not None else None
        )
        self.num_in_flight = 0
        self.num_computed = 0
        self.num_cached: int | None = None  # prompt tokens found in the cache at first admission
        self.row = -1  # of the page table and of the device's per-sequence state, while running
        self.num_pages = 0
        self.num_shared_pages = 0
        self.cache_node: CacheNode | None = None
        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def priority(self) -> int:
        """The request's priority."""
        return self.request.priority

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """The known tokens, prompt and output: [num_tokens]. A view."""
        return self._tokens[: self.num_tokens]

    @property
    def output_ids(self) -> npt.NDArray[np.int32]:
        """The known output tokens. A view."""
        return self._tokens[self.prompt_len : self.num_tokens]

    @property
    def num_output(self) -> int:
        """How many output tokens are known."""
        return self.num_tokens - self.prompt_len

    @property
    def length(self) -> int:
        """Tokens known or in flight."""
        return self.num_tokens + self.num_in_flight

    @property
    def num_remaining(self) -> int:
        """Tokens that no launched step has computed yet."""
        return self.length - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether only its last token, a sampled one, has yet to be computed."""
        return self.num_remaining == 1 and self.length > self.prompt_len

    @property
    def num_to_come(self) -> int:
        """How many more output tokens may be sampled, beyond those in flight."""
        return self.max_tokens - self.num_output - self.num_in_flight

    @property
    def awaits_end(self) -> bool:
        """Whether its last token is on its way."""
        return self.num_in_flight > 0 and self.num_to_come <= 0

    @property
    def num_reusable(self) -> int:
        """How many of the first tokens need not be computed if their keys and values are cached: the last one has
        to be, for its logits, and so has what is to tell the log probabilities of the prompt."""
        prompt = self.prompt_logprobs
        if prompt is not None and not prompt.is_complete:
            return len(prompt.records)
        return self.num_tokens - 1

    @property
    def jump_token(self) -> int | None:
        """The token that comes next whatever the model says, if there is one and nobody asks how likely it is."""
        if self.constraint is None or self.num_in_flight or self.request.logprobs is not None:
            return None
        return self.constraint.forced[0] if self.constraint.forced else None

    def append(self, token_id: int) -> None:
        """Take note of a sampled token."""
        if self.num_tokens == len(self._tokens):
            grown = np.empty(max(2 * len(self._tokens), 64), dtype=np.int32)
            grown[: self.num_tokens] = self._tokens
            self._tokens = grown
        self._tokens[self.num_tokens] = token_id
        self.num_tokens += 1

    def finish_reason_now(self) -> FinishReason | None:
        """Return why the sequence ends with its last known token, or None if it goes on."""
        last_token = int(self._tokens[self.num_tokens - 1])
        has_ended = self.constraint is not None and self.constraint.has_ended
        may_end = has_ended or self.num_output >= self.request.sampling.min_tokens
        if last_token in self.stop_token_ids and may_end:
            was_hastened = self.constraint is not None and has_ended and self.constraint.is_hastened
            return FinishReason.LENGTH if was_hastened else FinishReason.STOP
        if self.num_output >= self.max_tokens:
            return FinishReason.LENGTH
        return None
