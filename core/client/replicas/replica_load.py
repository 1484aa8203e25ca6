"""The requests that one of several engines has now, as the process that sends them knows it."""

from __future__ import annotations


class Place:
    """A request that was sent to an engine.

    Args:
        num_tokens: number of tokens of its prompt that the engine has to compute.

    Attributes:
        is_waiting: whether the engine has not answered yet.
    """

    __slots__ = ("is_waiting", "num_tokens")

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.is_waiting = True


class ReplicaLoad:
    """Counts the requests of one engine.

    Attributes:
        num_waiting: number of requests without output.
        num_running: number of requests with output.
        queued_tokens: number of prompt tokens that the waiting ones need computed.
        last_chosen: turn in which the engine was chosen last.
    """

    def __init__(self) -> None:
        self.num_waiting = 0
        self.num_running = 0
        self.queued_tokens = 0
        self.last_chosen = 0

    def enter(self, num_tokens: int) -> Place:
        """Count a request that is sent to the engine; return its place, for the other methods."""
        self.num_waiting += 1
        self.queued_tokens += num_tokens
        return Place(num_tokens)

    def answered(self, place: Place) -> None:
        """Record that a request has output. Further calls do nothing."""
        if place.is_waiting:
            place.is_waiting = False
            self.num_waiting -= 1
            self.num_running += 1
            self.queued_tokens -= place.num_tokens

    def leave(self, place: Place) -> None:
        """Forget a request that has ended. Call once."""
        self.answered(place)
        self.num_running -= 1
