"""The bundled routers, held to the promises of the interface, and to what each is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b

import pytest

from llmfw.core import ReplicaView, RoutedRequest, Router
from llmfw.core.testing import RouterTests
from llmfw.core.testing.routers import play
from llmfw.plugins.routers.load import Load
from llmfw.plugins.routers.prefix import Prefix
from llmfw.plugins.routers.round_robin import RoundRobin
from llmfw.plugins.routers.session import Session

OPTIONS = Router.Options()
Reference = Callable[[RoutedRequest, Sequence[ReplicaView]], list[ReplicaView]]


def least(replicas: Sequence[ReplicaView], *ranks: Callable[[ReplicaView], float]) -> list[ReplicaView]:
    """Return the engines that are left after each rank has left the lowest ones, but for rounding."""
    left = list(replicas)
    for rank in ranks:
        lowest = min(map(rank, left))
        left = [replica for replica in left if rank(replica) <= lowest * (1 + 1e-12)]
    return left


def num_requests(replica: ReplicaView) -> float:
    return replica.num_running + replica.num_waiting


def last_chosen(replica: ReplicaView) -> float:
    return replica.last_chosen


def queued(replica: ReplicaView) -> float:
    return replica.queued_tokens


class TestLoad(RouterTests):
    @pytest.fixture
    def router(self) -> Router:
        return Load(OPTIONS)

    @pytest.fixture
    def reference(self) -> Reference:
        return lambda request, replicas: least(replicas, queued, num_requests, last_chosen)


class TestPrefix(RouterTests):
    @pytest.fixture
    def router(self) -> Router:
        return Prefix(OPTIONS)

    @pytest.fixture
    def reference(self) -> Reference:
        def least_work(request: RoutedRequest, replicas: Sequence[ReplicaView]) -> list[ReplicaView]:
            def tokens(replica: ReplicaView) -> float:
                return replica.queued_tokens + 2 * request.num_tokens - 2 * replica.match_tokens

            return least(replicas, tokens, num_requests, last_chosen)

        return least_work


class TestRoundRobin(RouterTests):
    @pytest.fixture
    def router(self) -> Router:
        return RoundRobin(OPTIONS)

    @pytest.fixture
    def reference(self) -> Reference:
        return lambda request, replicas: least(replicas, last_chosen)


class TestSession(RouterTests):
    @pytest.fixture
    def router(self) -> Router:
        return Session(OPTIONS)

    @pytest.fixture
    def reference(self) -> Reference:
        """A tenant has the engine with the largest hash of both; without a tenant, it is the one with the fewest tokens."""

        def choices(request: RoutedRequest, replicas: Sequence[ReplicaView]) -> list[ReplicaView]:
            if request.tenant == "" and request.cache_salt == "":
                return least(replicas, queued, last_chosen)
            name = f"{request.tenant}\x1f{request.cache_salt}".encode()
            hashes = [
                blake2b(name, digest_size=8, salt=bytes(7) + bytes([each.index])).digest()
                for each in replicas
            ]
            return [replicas[hashes.index(max(hashes))]]

        return choices


def test_only_prefix_needs_matches() -> None:
    assert [kind.needs_matches for kind in (Prefix, Load, RoundRobin, Session)] == [True, False, False, False]


def test_without_a_tenant_sessions_follow_load() -> None:
    busy, idle = ReplicaView(0, queued_tokens=9), ReplicaView(1)
    for request in (RoutedRequest(5), RoutedRequest(50)):
        assert Session(OPTIONS).choose(request, [busy, idle]) is idle
    salted = [RoutedRequest(5, "", f"salt {i}") for i in range(20)]
    assert {Session(OPTIONS).choose(each, [busy, idle]).index for each in salted} == {0, 1}


def test_waiting_and_running_requests_both_count() -> None:
    """Among engines with as many queued tokens."""
    both, running = ReplicaView(0, num_waiting=3, num_running=4), ReplicaView(1, num_running=5, last_chosen=9)
    for router in (Load(OPTIONS), Prefix(OPTIONS)):
        assert router.choose(RoutedRequest(10), [both, running]) is running


def test_load_counts_tokens_before_requests() -> None:
    many, long = ReplicaView(0, num_waiting=5, queued_tokens=50), ReplicaView(1, 1, 0, 4000)
    assert Load(OPTIONS).choose(RoutedRequest(10), [many, long]) is many
    decoding = ReplicaView(0, num_running=9)
    idle = ReplicaView(1)
    assert Load(OPTIONS).choose(RoutedRequest(10), [decoding, idle]) is idle


def test_round_robin_takes_each_in_turn() -> None:
    assert play(RoundRobin(OPTIONS), [RoutedRequest(5)] * 7, num_replicas=3) == [0, 1, 2, 0, 1, 2, 0]


def test_sessions_stay_and_are_spread() -> None:
    router, views = Session(OPTIONS), [ReplicaView(index) for index in range(4)]
    requests = [RoutedRequest(5, f"tenant {i}") for i in range(400)]
    homes = [router.choose(request, views).index for request in requests]
    assert [router.choose(request, views[::-1]).index for request in requests] == homes
    assert min(Counter(homes).values()) > 60
    without_last = [router.choose(request, views[:3]).index for request in requests]
    assert all(after == home for home, after in zip(homes, without_last, strict=True) if home != 3)
    assert len({after for home, after in zip(homes, without_last, strict=True) if home == 3}) == 3


def test_salts_are_sessions_too() -> None:
    router, views = Session(OPTIONS), [ReplicaView(index) for index in range(8)]
    homes = {router.choose(RoutedRequest(5, "one", f"salt {i}"), views).index for i in range(40)}
    assert len(homes) > 3


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ({"match_tokens": 800}, {}, 0),  # a match, both idle
        ({"match_tokens": 800, "queued_tokens": 1_500}, {}, 0),  # 1500 + 2 * 200 < 2 * 1000
        ({"match_tokens": 800, "queued_tokens": 1_700}, {}, 1),
        ({"queued_tokens": 400}, {"queued_tokens": 500}, 0),
        ({"queued_tokens": 1}, {}, 1),
        (
            {"tokens_per_s": 9.0, "last_chosen": 1},
            {"tokens_per_s": 4000.0},
            1,
        ),  # equal: the last ones were larger
        ({"last_chosen": 3}, {"last_chosen": 2}, 1),
        ({"num_running": 3}, {"last_chosen": 2}, 1),
    ],
)
def test_prefix_chooses_the_fewest_tokens(
    first: dict[str, float], second: dict[str, float], chosen: int
) -> None:
    views = [ReplicaView(0, **first), ReplicaView(1, **second)]  # type: ignore[arg-type]
    assert Prefix(OPTIONS).choose(RoutedRequest(1000), views).index == chosen
