"""Conformance tests of the `Router` interface."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
import pytest

from llmfw.core.interfaces.router import ReplicaView, RoutedRequest, Router

from .declared import declared

Reference = Callable[[RoutedRequest, Sequence[ReplicaView]], Collection[ReplicaView]]
"""Returns the engines of which the router may choose any."""

MAX_CHOICE_S = 50e-6
"""Processor time that a choice among 8 engines may take, on average: the API process streams no tokens meanwhile."""

MAX_KEPT = 2_000
"""Blocks of memory that a router may keep of 10,000 requests; a router that keeps each has more than 10,000."""


class RouterTests:
    """Conformance tests of a router.

    Derive from this class and override the fixture `router`.
    """

    @pytest.fixture
    def router(self) -> Router:
        """Return the router under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture router")

    @pytest.fixture
    def reference(self, router: Router) -> Reference | None:
        """Return a function that finds all engines that the router may choose; None: unknown."""
        return declared(router, "reference", None)

    @pytest.fixture
    def max_choice_s(self) -> float:
        """Return the processor time in seconds that a choice may take, on average."""
        return MAX_CHOICE_S

    def test_the_choice_is_one_of_the_engines(self, router: Router) -> None:
        for request, replicas in example_choices():
            found = router.choose(request, replicas)
            assert any(found is replica for replica in replicas), f"{found!r} is not one of {replicas}"

    def test_choices_equal_the_reference(self, router: Router, reference: Reference | None) -> None:
        """As in a server, a router without `needs_matches` does not get the number of matching tokens."""
        if reference is None:
            pytest.skip(
                "the router does not have the capability reference (a plain function with the same choices)"
            )
        for request, replicas in (*example_choices(), *close_choices()):
            given = replicas
            if not router.needs_matches:
                given = [msgspec.structs.replace(replica, match_tokens=0) for replica in replicas]
            found = router.choose(request, given).index
            expected = [replica.index for replica in reference(request, replicas)]
            assert found in expected, (
                f"engine {found} of {replicas} for {request}; the reference has {expected}"
            )

    def test_missing_engines_are_not_chosen(self, router: Router) -> None:
        """The numbers of the engines have gaps while some are being restarted."""
        views = [ReplicaView(index, queued_tokens=10 * index) for index in range(8)]
        rng = random.Random(1)
        for i in range(200):
            left = sorted(rng.sample(views, rng.randrange(2, 7)), key=lambda view: view.index)
            found = router.choose(RoutedRequest(100, tenant=f"t{i % 9}"), left)
            assert any(found is replica for replica in left), f"{found!r} is not one of {left}"

    def test_equal_choices_do_not_depend_on_places(self, router: Router) -> None:
        """The engine that was chosen is chosen again without another one: engines are known by `index`."""
        rng = random.Random(2)
        views = [
            ReplicaView(index, queued_tokens=1_000 * rng.randrange(9), last_chosen=index)
            for index in range(6)
        ]
        for i in range(60):
            request = RoutedRequest(100, tenant=f"tenant {i}", cache_salt=f"salt {i}")
            found = router.choose(request, views).index
            again = router.choose(request, list(views)).index
            if again != found:
                pytest.skip("the router does not have the capability that equal views give equal choices")
            others = [view for view in views if view.index != found]
            for gone in (others[0], others[-1]):
                left = [view for view in views if view is not gone]
                assert router.choose(request, left).index == found, (
                    f"engine {found} is chosen for {request}, but another one once engine {gone.index} is gone"
                )

    def test_engines_not_measured_yet_are_no_fault(self, router: Router) -> None:
        """At the start, no engine has a measured speed; later, a restarted engine has none."""
        for speeds in ((0.0, 0.0, 0.0), (0.0, 5000.0, 0.0), (5000.0, 0.0, 1e-9)):
            views = [ReplicaView(i, tokens_per_s=speed) for i, speed in enumerate(speeds)]
            assert router.choose(RoutedRequest(1000), views) in views

    def test_idle_engines_all_get_requests(self, router: Router) -> None:
        """If many tenants send short requests one after another, each engine gets at least one."""
        found = play(router, [RoutedRequest(10, tenant=f"tenant {i}") for i in range(300)], num_replicas=3)
        assert set(found) == {0, 1, 2}

    def test_the_engines_are_not_changed(self, router: Router) -> None:
        for request, replicas in example_choices():
            before = list(replicas)
            router.choose(request, replicas)
            assert replicas == before, "the router changes the list of engines"

    def test_extreme_numbers_are_no_fault(self, router: Router) -> None:
        request = RoutedRequest(
            2**40, tenant='"\\\n\0\x1b\u2028é漢🙂' * 300, cache_salt="\x1f", deferrable=True
        )
        views = [
            ReplicaView(0, 2**31, 2**31, 2**50, 2**40, 1e-300, 2**60),
            ReplicaView(255, 0, 0, 0, 2**40, 1e300, 0),
        ]
        assert router.choose(request, views) in views
        assert router.choose(RoutedRequest(0), views) in views

    def test_nothing_is_kept_of_ended_requests(self, router: Router) -> None:
        counts = []
        views = [ReplicaView(index) for index in range(4)]
        for turn in range(3):
            for i in range(10_000):
                router.choose(RoutedRequest(i, f"tenant {turn}-{i}", f"salt {turn}-{i}"), views)
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 10,000 further requests"

    def test_a_choice_costs_little(self, router: Router, max_choice_s: float) -> None:
        """Measures processor time: the best of five runs over 1,000 requests."""
        views = [ReplicaView(i, i, 2 * i, 100 * i, 10 * i, 1000.0, i) for i in range(8)]
        requests = [RoutedRequest(100 + i, f"tenant {i}") for i in range(1_000)]
        times = []
        for _ in range(5):
            begun = time.thread_time()
            for request in requests:
                router.choose(request, views)
            times.append((time.thread_time() - begun) / len(requests))
        assert min(times) <= max_choice_s, f"{1e6 * min(times):.1f} us of processor time per choice"


def play(router: Router, requests: Sequence[RoutedRequest], num_replicas: int) -> list[int]:
    """Return the numbers of the engines that a router chooses, if each request ends before the next."""
    last_chosen, found = [0] * num_replicas, []
    for turn, request in enumerate(requests, 1):
        views = [ReplicaView(index, last_chosen=last) for index, last in enumerate(last_chosen)]
        index = router.choose(request, views).index
        last_chosen[index] = turn
        found.append(index)
    return found


def close_choices() -> Iterator[tuple[RoutedRequest, list[ReplicaView]]]:
    """Yield requests, each with engines that are equal or nearly equal."""
    rng = random.Random(1)
    for turn in range(600):
        views = [
            ReplicaView(
                index,
                num_waiting=rng.randrange(3),
                num_running=rng.randrange(3),
                queued_tokens=rng.choice([0, 0, 10, 20]),
                match_tokens=rng.choice([0, 0, 5, 10]),
                tokens_per_s=rng.choice([0.0, 1000.0, 1000.0, 2000.0]),
                last_chosen=rng.randrange(4),
            )
            for index in range(rng.randrange(2, 5))
        ]
        yield RoutedRequest(10, ("", "alice")[turn % 2], ("", "salt")[turn % 3 == 0]), views


def example_choices() -> Iterator[tuple[RoutedRequest, list[ReplicaView]]]:
    """Yield requests, each with engines that have much or little work."""
    rng = random.Random(0)
    for turn in range(300):
        num_tokens = rng.choice([1, rng.randrange(1, 100), rng.randrange(1, 100_000)])
        views = [
            ReplicaView(
                index,
                num_waiting=rng.choice([0, rng.randrange(50)]),
                num_running=rng.choice([0, rng.randrange(500)]),
                queued_tokens=rng.choice([0, rng.randrange(200_000)]),
                match_tokens=rng.choice([0, rng.randrange(num_tokens + 1)]),
                tokens_per_s=rng.choice([0.0, rng.random(), 20_000 * rng.random()]),
                last_chosen=rng.randrange(turn + 1),
            )
            for index in sorted(rng.sample(range(12), rng.randrange(2, 9)))
        ]
        tenant = rng.choice(["", "alice", "bob"])
        yield RoutedRequest(num_tokens, tenant, rng.choice(["", "salt"]), rng.random() < 0.3), views
