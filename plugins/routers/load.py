"""The router `load`: the engine with the fewest prompt tokens to compute."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core import ReplicaView, RoutedRequest, Router


class Load(Router):
    """Chooses by the fewest queued tokens, then the fewest requests, then the least recent choice."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=_work)


def _work(replica: ReplicaView) -> tuple[int, int, int]:
    return replica.queued_tokens, replica.num_waiting + replica.num_running, replica.last_chosen
