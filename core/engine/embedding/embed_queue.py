"""Chooses which prompts to embed next. No tensors.

Requests take turns. A batch starts with the first prompt of the request whose turn it is. The rest of the
batch is filled from the next prompts, closest length first. So batches have little padding, and a request
waits for at most one batch per other request.

Prompts of deferrable requests (see `deferral`) wait in a separate queue. They fill whole batches while no
live prompt waits, and only a fraction of a batch with live prompts.
"""

from __future__ import annotations

from llmfw.core.base.request import EmbedRequest
from llmfw.core.schedule.deferral import Limits

from .embed_lane import EmbedLane, Waiting

SLACK = 8  # tokens by which lengths may always differ; another batch would cost more than this padding
MAX_PADDING = 1.25  # maximum ratio of a batch's longest prompt to its shortest, beyond the slack


class EmbedQueue:
    """Waiting prompts, live and deferrable.

    Args:
        batch_tokens: maximum number of tokens in a batch, including padding. A longer prompt is a batch by
            itself.
        batch_size: maximum number of prompts in a batch.
        window_tokens: total number of tokens of the next prompts, from which a batch is chosen.
        share: fraction of the prompts and tokens of a batch with live prompts that deferrable requests may
            use; 0: none.
    """

    def __init__(self, batch_tokens: int, batch_size: int, window_tokens: int, share: float = 0.0) -> None:
        self._whole = Limits(batch_size, batch_tokens)
        self._share = Limits.share_of(self._whole, share)
        self._window_tokens = window_tokens
        self._live = EmbedLane()
        self._deferrable = EmbedLane()

    def __len__(self) -> int:
        return len(self._live) + len(self._deferrable)

    @property
    def num_deferrable(self) -> int:
        """Number of waiting deferrable prompts."""
        return len(self._deferrable)

    def add(self, request: EmbedRequest) -> None:
        """Add all prompts of a request."""
        self._lane(request).add(request)

    def remove(self, request: EmbedRequest) -> None:
        """Remove the waiting prompts of a request."""
        self._lane(request).remove(request)

    def take(self, alone: Limits | None = None) -> list[Waiting]:
        """Remove and return the prompts of the next batch; empty if no prompt waits.

        Args:
            alone: limits of a batch that has only deferrable prompts; None: the limits of other batches.
        """
        if not self._live:
            return self._take(self._deferrable, [], alone or self._whole)
        batch = self._take(self._live, [], self._whole)
        return batch + self._take(self._deferrable, batch, self._share)

    def _take(self, waiting: EmbedLane, beside: list[Waiting], limits: Limits) -> list[Waiting]:
        """Remove and return prompts to add to a batch.

        Args:
            waiting: lane to take the prompts from.
            beside: prompts that are already in the batch.
            limits: limits of the added prompts.
        """
        window = waiting.window(self._window_tokens) if limits.places else []
        if not window:
            return []
        lengths = [len(each.prompt) for each in beside]
        first = lengths[0] if lengths else len(window[0].prompt)
        batch: list[Waiting] = []
        for each in sorted(window, key=lambda each: abs(len(each.prompt) - first)):
            lengths.append(len(each.prompt))
            is_first = len(lengths) == 1
            if not is_first and not (_fit(lengths, self._whole) and _fit(lengths[len(beside) :], limits)):
                break
            batch.append(each)
        waiting.take(batch)
        return batch

    def _lane(self, request: EmbedRequest) -> EmbedLane:
        return self._deferrable if request.deferrable else self._live


def _fit(lengths: list[int], limits: Limits) -> bool:
    """Return whether prompts of these lengths may form one batch."""
    count, longest = len(lengths), max(lengths)
    within = count <= limits.places and count * (longest + limits.tokens_per_place) <= limits.tokens
    return within and longest <= MAX_PADDING * min(lengths) + SLACK
