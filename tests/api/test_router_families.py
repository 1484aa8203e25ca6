"""The router's estimates in the metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from llmfw.api.metrics.router_families import router_families
from llmfw.core.client.client import ReplicaState
from llmfw.core.client.replicas.router_accuracy import RouterAccuracy


class Found(Collector):
    """Has the families of some engines."""

    def __init__(self, *engines: ReplicaState) -> None:
        self._engines = engines

    def collect(self) -> list[Metric]:
        return list(router_families(self._engines))


def text(*engines: ReplicaState) -> str:
    registry = CollectorRegistry()
    registry.register(Found(*engines))
    return generate_latest(registry).decode()


def test_each_engine_has_estimates_and_waits() -> None:
    accuracy = RouterAccuracy()
    accuracy.note(0.04, 0.3)
    found = text(
        ReplicaState(None, 0, 0, accuracy.estimated, accuracy.actual),
        ReplicaState(None, 0, 3, RouterAccuracy().estimated, RouterAccuracy().actual),
        ReplicaState(None, 0, 4),
    )
    assert 'llmfw_router_estimated_seconds_sum{engine="0"} 0.04' in found
    assert 'llmfw_router_estimated_seconds_bucket{engine="0",le="0.05"} 1.0' in found
    assert 'llmfw_router_waited_seconds_sum{engine="0"} 0.3' in found
    assert 'llmfw_router_waited_seconds_count{engine="3"} 0.0' in found
    assert 'engine="4"' not in found


def test_one_engine_has_no_router() -> None:
    assert text() == ""
