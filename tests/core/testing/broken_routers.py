"""Routers that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llmfw.core import ReplicaView, RoutedRequest, Router
from llmfw.core.testing import RouterTests


class Broken(Router):
    """Chooses the least loaded engine, and has room for what a broken router keeps."""

    def __init__(self, options: Router.Options) -> None:
        super().__init__(options)
        self.kept: dict[str, Any] = {}
        self.turn = 0

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=lambda replica: (replica.queued_tokens, replica.last_chosen))


class ForgetsTies(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=lambda replica: replica.queued_tokens)


class ReturnsTheNumber(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return super().choose(request, replicas).index  # type: ignore[return-value]


class TakesNumbersForPlaces(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        self.turn += 1
        return replicas[replicas[self.turn % len(replicas)].index]


class SticksToItsFirstChoice(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return self.kept.setdefault("first of many" if len(replicas) > 3 else "of few", replicas[-1])  # type: ignore[no-any-return]


class DividesBySpeed(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=lambda replica: replica.queued_tokens / replica.tokens_per_s)


class PrefersTheFirst(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return min(replicas, key=lambda replica: replica.queued_tokens)


class SortsInPlace(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        replicas.sort(key=lambda replica: (replica.queued_tokens, replica.last_chosen))  # type: ignore[attr-defined]
        return replicas[0]


class CountsInBytes(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        request.num_tokens.to_bytes(4, "big")
        return super().choose(request, replicas)


class KeepsEverySession(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        index = self.kept.setdefault(request.tenant, super().choose(request, replicas).index)
        return next((each for each in replicas if each.index == index), replicas[0])


class PinsTenantsToPlaces(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        return replicas[len(request.tenant) % len(replicas)]


class Ponders(Broken):
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        ends = time.thread_time() + 0.0002
        while time.thread_time() < ends:
            pass
        return super().choose(request, replicas)


class OfKind(RouterTests):
    kind: type[Router]

    @pytest.fixture
    def router(self) -> Router:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def reference(self) -> Callable[[RoutedRequest, Sequence[ReplicaView]], list[ReplicaView]]:
        def choices(request: RoutedRequest, replicas: Sequence[ReplicaView]) -> list[ReplicaView]:
            fewest = min(replica.queued_tokens for replica in replicas)
            left = [replica for replica in replicas if replica.queued_tokens == fewest]
            oldest = min(replica.last_chosen for replica in left)
            return [replica for replica in left if replica.last_chosen == oldest]

        return choices


def test_class(kind: type[Router]) -> Any:
    """Return a test class for a router."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
