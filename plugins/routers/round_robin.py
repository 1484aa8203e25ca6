"""The router `round-robin`: one engine after the other, regardless of load."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core import ReplicaView, RoutedRequest, Router


class RoundRobin(Router):
    """Chooses the engine that was chosen least recently.

    For comparisons, and for requests that are all alike.
    """

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=lambda replica: replica.last_chosen)
