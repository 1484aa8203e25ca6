"""Which prompts are embedded next: bookkeeping without tensors.

Prompts wait in the order of their arrival. A batch holds the one that has waited longest, always, and of those right
behind it the ones nearest to it in length: little padding is computed, and a prompt waits for no more batches than
there are prompts before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..request import EmbedRequest

SLACK = 8  # tokens by which lengths may differ in any case: small batches cost more than so little padding
MAX_PADDING = 1.25  # longest by shortest of a batch, beyond the slack


@dataclass(frozen=True, slots=True)
class Waiting:
    """One prompt of a request.

    Attributes:
        index: among the request's prompts.
    """

    request: EmbedRequest
    index: int

    @property
    def prompt(self) -> list[int]:
        """Token ids."""
        return self.request.prompts[self.index]


class EmbedQueue:
    """The prompts that wait.

    Args:
        batch_tokens: most tokens of a batch, padding included. A longer prompt is a batch of its own.
        batch_size: most prompts of a batch.
        window_tokens: so many of the tokens that wait longest are looked at.
    """

    def __init__(self, batch_tokens: int, batch_size: int, window_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._batch_size = batch_size
        self._window_tokens = window_tokens
        self._waiting: dict[tuple[str, int], Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: EmbedRequest) -> None:
        """Let all prompts of a request wait."""
        for index in range(len(request.prompts)):
            self._waiting[request.id, index] = Waiting(request, index)

    def remove(self, request: EmbedRequest) -> None:
        """Forget what waits of a request."""
        for index in range(len(request.prompts)):
            self._waiting.pop((request.id, index), None)

    def take(self) -> list[Waiting]:
        """Remove and return the next batch, the prompt that has waited longest first; empty if nothing waits."""
        window = self._window()
        if not window:
            return []
        length = len(window[0].prompt)
        nearest = sorted(window, key=lambda waiting: abs(len(waiting.prompt) - length))
        batch: list[Waiting] = []
        shortest = longest = length
        for waiting in nearest:
            shortest, longest = min(shortest, len(waiting.prompt)), max(longest, len(waiting.prompt))
            if batch and not self._fits(len(batch) + 1, shortest, longest):
                break
            batch.append(waiting)
        for waiting in batch:
            del self._waiting[waiting.request.id, waiting.index]
        return batch

    def _fits(self, count: int, shortest: int, longest: int) -> bool:
        within_budget = count <= self._batch_size and count * longest <= self._batch_tokens
        return within_budget and longest <= MAX_PADDING * shortest + SLACK

    def _window(self) -> list[Waiting]:
        return list(_up_to(self._window_tokens, self._waiting.values()))


def _up_to(num_tokens: int, waiting: Iterable[Waiting]) -> Iterable[Waiting]:
    """Yield the first ones, until they hold so many tokens; at least one."""
    for each in waiting:
        yield each
        num_tokens -= len(each.prompt)
        if num_tokens <= 0:
            return
