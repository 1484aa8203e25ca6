"""Chooses the engine of a request by what the engines have to do."""

from __future__ import annotations

from collections.abc import Sequence

from .replica import Replica


def least_loaded(replicas: Sequence[Replica]) -> Replica:
    """Return the engine with the fewest queued prompt tokens, then the fewest requests; of several, the one that was not
    chosen for the longest time."""
    return min(replicas, key=lambda each: (*_work(each), each.load.last_chosen))


def _work(replica: Replica) -> tuple[int, int]:
    return replica.load.queued_tokens, replica.load.num_waiting + replica.load.num_running
