"""The router `prefix`: the engine that can finish computing the prompt first, given its prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core import ReplicaView, RoutedRequest, Router


class Prefix(Router):
    """Chooses the least (queued uncached tokens + 2 x own uncached tokens) / prefill speed, in seconds.

    The request's own tokens count twice, because computing them again also takes cache space, and time from
    later requests. In a simulation of four engines near their capacity, counting them twice gave shorter
    waits than counting them once, and much shorter waits than rules with thresholds.
    """

    needs_matches = True

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        measured = [replica.tokens_per_s for replica in replicas if replica.tokens_per_s > 0]
        usual = (
            sum(measured) / len(measured) if measured else 1.0
        )  # speed of engines that have not been measured
        own = request.num_tokens
        seconds = [
            (each.queued_tokens + 2 * (own - each.match_tokens)) / (each.tokens_per_s or usual)
            for each in replicas
        ]
        least = min(seconds)
        best = [replica for replica, each in zip(replicas, seconds, strict=True) if each == least]
        return best[0] if len(best) == 1 else min(best, key=_among_equals)


def _among_equals(replica: ReplicaView) -> tuple[int, int]:
    """Return the sort key of engines with equal estimates: fewest requests, then least recently chosen."""
    return replica.num_waiting + replica.num_running, replica.last_chosen
