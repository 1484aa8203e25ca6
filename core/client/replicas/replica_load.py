"""Counts the current requests of one of several engines, in the process that sends them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..prompt_prefixes import GROWTH, NO_PREFIXES, PromptPrefixes


class Place:
    """A request that was sent to an engine.

    Args:
        num_tokens: number of tokens of its prompt that the engine has to compute.
        prefixes: prefixes of its prompt.
        num_cached: number of these prefixes that the engine has cached.
        deferrable: whether the engine prefers other requests.
        estimated_s: estimated seconds until its prompt is computed; None: unknown.

    Attributes:
        num_awaited: number of prefixes that `ReplicaLoad.awaited` counts, after the cached ones.
        is_waiting: whether the request has no output yet.
        sent_at: time at which it was sent, by the clock of `time.monotonic`.
    """

    __slots__ = (
        "deferrable",
        "estimated_s",
        "is_waiting",
        "num_awaited",
        "num_cached",
        "num_tokens",
        "prefixes",
        "sent_at",
    )

    def __init__(
        self,
        num_tokens: int,
        prefixes: PromptPrefixes = NO_PREFIXES,
        num_cached: int = 0,
        *,
        deferrable: bool = False,
        estimated_s: float | None = None,
    ) -> None:
        self.estimated_s = estimated_s
        self.sent_at = time.monotonic()
        self.num_tokens = num_tokens
        self.prefixes = prefixes
        self.num_cached = num_cached
        self.num_awaited = 0
        self.deferrable = deferrable
        self.is_waiting = True

    @property
    def awaited(self) -> Sequence[int]:
        """Hashes of the prefixes that are awaited."""
        return self.prefixes.known[self.num_cached : self.num_cached + self.num_awaited]


class ReplicaLoad:
    """Counts the requests of one engine.

    Attributes:
        num_waiting: number of requests without output.
        num_running: number of requests with output.
        queued_tokens: number of prompt tokens that the engine must compute for the waiting requests.
        deferrable_tokens: number of these tokens that belong to deferrable requests.
        last_chosen: number of the turn in which the engine was last chosen.
        version: number that grows with each change.
        awaited: hash of a prefix that the engine has not cached → number of waiting requests with it. The
            engine computes each prefix once. Long prompts have only their first prefixes here, until another
            request with these comes.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        self.num_running = 0
        self.queued_tokens = self.deferrable_tokens = 0
        self.last_chosen = self.version = 0
        self.awaited: dict[int, int] = {}
        # Hash of a prefix → waiting requests of which it is the last one that is awaited, but not the last.
        self._unfinished: dict[int, dict[Place, None]] = {}

    @property
    def num_requests(self) -> int:
        """Number of requests, with and without output."""
        return self.num_waiting + self.num_running

    def enter(self, place: Place) -> None:
        """Count a request that is sent to the engine."""
        self.version += 1
        self.num_waiting += 1
        self._count(place, place.num_tokens)
        self._await(place)

    def answered(self, place: Place) -> None:
        """Record that a request has output. Further calls do nothing."""
        if place.is_waiting:
            self.version += 1
            place.is_waiting = False
            self.num_waiting -= 1
            self.num_running += 1
            self._count(place, -place.num_tokens)
            self._forget(place)

    def leave(self, place: Place) -> None:
        """Forget a request that has ended. Call once."""
        self.answered(place)
        self.version += 1
        self.num_running -= 1

    def _count(self, place: Place, num_tokens: int) -> None:
        self.queued_tokens += num_tokens
        if place.deferrable:
            self.deferrable_tokens += num_tokens

    def num_matched(self, prompt: PromptPrefixes, num_cached: int) -> int:
        """Return the number of leading prefixes that the engine has cached, or computes for other requests.

        Args:
            num_cached: number of leading prefixes that it has cached, fewer than all.
        """
        known, count, awaited, unfinished = prompt.known, num_cached, self.awaited, self._unfinished
        while count < prompt.num_blocks:
            if count == len(known):
                prompt.up_to(GROWTH * count)
                continue
            each = known[count]
            if each not in awaited:
                break
            count += 1
            if each in unfinished and count < prompt.num_blocks:
                self._finish(unfinished.pop(each))
        return count

    def _finish(self, places: Iterable[Place]) -> None:
        """Count the remaining prefixes of requests, too."""
        for place in places:
            self._forget(place)
            place.prefixes.up_to(place.prefixes.num_blocks)
            self._await(place)

    def _await(self, place: Place) -> None:
        """Count the known prefixes of a request that the engine has not cached."""
        prefixes, awaited = place.prefixes, self.awaited
        place.num_awaited = len(prefixes.known) - place.num_cached
        for each in place.awaited:
            awaited[each] = awaited.get(each, 0) + 1
        if place.num_awaited and len(prefixes.known) < prefixes.num_blocks:
            self._unfinished.setdefault(prefixes.known[-1], {})[place] = None

    def _forget(self, place: Place) -> None:
        awaited, hashes = self.awaited, place.awaited
        for each in hashes:
            left = awaited[each] - 1
            if left:
                awaited[each] = left
            else:
                del awaited[each]
        if hashes and (places := self._unfinished.get(hashes[-1])) is not None:
            places.pop(place, None)
            if not places:
                del self._unfinished[hashes[-1]]
