"""Counts the current requests of one of several engines, in the process that sends them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence


class Place:
    """A request that was sent to an engine.

    Args:
        num_tokens: number of tokens of its prompt that the engine has to compute.
        hashes: hash of each prefix of its prompt that ends with a block.
        deferrable: whether the engine prefers other requests.
        estimated_s: estimated seconds until its prompt is computed; None: unknown.

    Attributes:
        is_waiting: whether the request has no output yet.
        sent_at: time at which it was sent, by the clock of `time.monotonic`.
    """

    __slots__ = ("deferrable", "estimated_s", "hashes", "is_waiting", "num_tokens", "sent_at")

    def __init__(
        self,
        num_tokens: int,
        hashes: Sequence[int] = (),
        *,
        deferrable: bool = False,
        estimated_s: float | None = None,
    ) -> None:
        self.estimated_s = estimated_s
        self.sent_at = time.monotonic()
        self.num_tokens = num_tokens
        self.hashes = hashes
        self.deferrable = deferrable
        self.is_waiting = True


class ReplicaLoad:
    """Counts the requests of one engine.

    Attributes:
        num_waiting: number of requests without output.
        num_running: number of requests with output.
        queued_tokens: number of prompt tokens that the engine must compute for the waiting requests.
        deferrable_tokens: number of these tokens that belong to deferrable requests.
        last_chosen: number of the turn in which the engine was last chosen.
        version: number that grows with each change.
        awaited: hash of each prefix of the waiting requests' prompts → number of waiting requests with this
            prefix. The engine computes each prefix once.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        self.num_running = 0
        self.queued_tokens = self.deferrable_tokens = 0
        self.last_chosen = self.version = 0
        self.awaited: Counter[int] = Counter()

    @property
    def num_requests(self) -> int:
        """Number of requests, with and without output."""
        return self.num_waiting + self.num_running

    def enter(self, place: Place) -> None:
        """Count a request that is sent to the engine."""
        self.version += 1
        self.num_waiting += 1
        self._count(place, place.num_tokens)
        self.awaited.update(place.hashes)

    def answered(self, place: Place) -> None:
        """Record that a request has output. Further calls do nothing."""
        if place.is_waiting:
            self.version += 1
            place.is_waiting = False
            self.num_waiting -= 1
            self.num_running += 1
            self._count(place, -place.num_tokens)
            awaited = self.awaited
            for each in place.hashes:
                left = awaited[each] - 1
                if left:
                    awaited[each] = left
                else:
                    del awaited[each]

    def leave(self, place: Place) -> None:
        """Forget a request that has ended. Call once."""
        self.answered(place)
        self.version += 1
        self.num_running -= 1

    def _count(self, place: Place, num_tokens: int) -> None:
        self.queued_tokens += num_tokens
        if place.deferrable:
            self.deferrable_tokens += num_tokens
