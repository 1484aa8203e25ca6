"""Conformance tests of the `RequestObserver` interface."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client import Metric

from llmfw.core.interfaces.observer import (
    RequestEnded,
    RequestEvent,
    RequestFirstToken,
    RequestObserver,
    RequestStarted,
)

from .varied_requests import FINISHES, mixed, varied_requests

MAX_EVENT_S = 100e-6
"""Processor time that one event may take, on average, as all requests of a server wait for Python's lock."""
NUM_ENDED = (3_000, 1_000, 1_000)
"""Requests that end before each count of the memory; the first ones fill what keeps the newest few thousand."""
MAX_KEPT = 500
"""Blocks of memory that an observer may keep of 1,000 requests; one that keeps all has more than 1,000."""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Batch(list[RequestEvent]):
    """A list that weak references may refer to."""


class RequestObserverTests:
    """Conformance tests of an observer.

    Derive from this class and override the fixture `observer`. To test what the observer records, override
    `reference`, and `recorded` if it records more than metrics.
    """

    @pytest.fixture
    def observer(self) -> RequestObserver:
        """Return the observer under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture observer")

    @pytest.fixture
    def max_event_s(self) -> float:
        """Return the processor time in seconds that one event may take, on average."""
        return MAX_EVENT_S

    @pytest.fixture
    def recorded(self) -> Callable[[Any], Any]:
        """Return a function that returns an observer's record so far; by default, its metrics' samples."""
        return samples_of

    @pytest.fixture
    def reference(self) -> Callable[[Sequence[RequestEvent]], Any] | None:
        """Return a simple function that computes the expected record of events; None: no reference.

        The tests compare its result with the result of `recorded` by `==`.
        """
        return None

    @pytest.mark.parametrize("part", [1.0, 0.5, 0.0])
    def test_what_is_recorded_equals_the_reference(
        self, observer: RequestObserver, recorded: Any, reference: Any, part: float
    ) -> None:
        """Tests the events of 300 random requests, the first half of them, and no events, in random calls."""
        if reference is None:
            pytest.skip(
                "the observer does not have the capability reference (a function: events → what it records)"
            )
        events = varied_requests(300, seed=1)
        events = events[: int(part * len(events))]
        in_a_thread(observer, cut(events, seed=1))
        assert recorded(observer) == reference(events)

    def test_no_label_is_chosen_by_a_client(self, observer: RequestObserver) -> None:
        """Clients choose ids, users and error texts. Prometheus keeps a series for each label value."""
        secret = "chosen-by-a-client"
        *_, end = request_events(secret, "error", tenant=secret, error=secret)
        assert isinstance(end, RequestEnded)
        started = msgspec.structs.replace(end.started, tenant_is_key=False)
        in_a_thread(observer, [[started, msgspec.structs.replace(end, started=started)]])
        chosen = [name for name, labels in samples_of(observer) if secret in dict(labels).values()]
        assert chosen == [], "metrics with a label that clients choose"

    @pytest.mark.parametrize("finish", FINISHES)
    def test_every_end_is_accepted(self, observer: RequestObserver, finish: str) -> None:
        in_a_thread(observer, [list(request_events("a", finish))])

    @pytest.mark.parametrize("task", ["generate", "embed"])
    def test_every_task_is_accepted(self, observer: RequestObserver, task: str) -> None:
        in_a_thread(observer, [[*request_events("a", "stop", task=task, tenant="")]])

    def test_odd_text_is_accepted(self, observer: RequestObserver) -> None:
        """Clients choose the tenant; an error may quote any text."""
        odd = '"\\\n\r\t\0\x1b[31m\u2028' + "é漢🙂" + "x" * 5_000
        in_a_thread(observer, [list(request_events(odd, "error", tenant=odd, error=odd))])

    @pytest.mark.parametrize("seed", range(3))
    def test_events_are_accepted_in_any_batches(self, observer: RequestObserver, seed: int) -> None:
        """Requests overlap, and a call may have one event or thousands."""
        in_a_thread(observer, cut(interleaved(400, seed), seed))

    def test_restarted_and_unanswered_requests_are_accepted(self, observer: RequestObserver) -> None:
        start, first, end = request_events("a", "stop")
        in_a_thread(observer, [[start, first, first, end], list(request_events("b", "abort", tokens=0))])

    def test_the_list_may_be_changed_afterwards(self, observer: RequestObserver) -> None:
        events = list(interleaved(10, 0))
        in_a_thread(observer, [events], after_each=events.clear)

    def test_the_list_is_not_kept(self, observer: RequestObserver) -> None:
        """The observer may keep events. The list belongs to the caller, even after `close`."""
        lists = [Batch(interleaved(10, seed)) for seed in range(3)]
        known = [weakref.ref(events) for events in lists]
        in_a_thread(observer, (lists.pop() for _ in known))
        gc.collect()
        kept = sum(reference() is not None for reference in known)
        assert kept == 0, f"the observer still holds {kept} of 3 lists: copy what it needs"

    def test_metrics_have_names_of_their_own(self, observer: RequestObserver) -> None:
        """`metrics` is called between two calls of `observe`, and each family's name is used once."""
        names: list[list[str]] = []

        def ask() -> None:
            found = list(observer.metrics())
            assert all(isinstance(each, Metric) for each in found), f"metrics() returned {found!r:.200}"
            names.append([each.name for each in found])

        in_a_thread(observer, [interleaved(10, seed) for seed in range(3)], after_each=ask)
        for each in names:
            assert len(set(each)) == len(each), f"metrics() repeats a name: {each}"

    def test_ends_without_events(self, observer: RequestObserver) -> None:
        in_a_thread(observer, [])

    def test_an_event_costs_little(self, observer: RequestObserver, max_event_s: float) -> None:
        """Measures processor time of the observer's thread, for 20 calls with 600 events each."""
        batches = [list(interleaved(200, seed)) for seed in range(20)]
        taken = in_a_thread(observer, batches)
        num = sum(map(len, batches))
        assert taken / num <= max_event_s, f"{1e6 * taken / num:.0f} us of processor time per event"

    @pytest.mark.parametrize("tokens", [7, 0])
    @pytest.mark.parametrize("finish", FINISHES)
    def test_ended_requests_are_forgotten(self, observer: RequestObserver, finish: str, tokens: int) -> None:
        """Data kept for each request would grow without limit. A refused request has no first token."""
        counts: list[int] = []
        names = map(str, itertools.count())

        def batches() -> Iterator[list[RequestEvent]]:
            for num in NUM_ENDED:
                yield [
                    each for _ in range(num) for each in request_events(next(names), finish, tokens=tokens)
                ]
                gc.collect()
                counts.append(sys.getallocatedblocks())

        in_a_thread(observer, batches())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after {NUM_ENDED[-1]:,} further requests"


def samples_of(observer: RequestObserver) -> Samples:
    """Return the samples of an observer's metrics: (name, labels) → value."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in observer.metrics()
        for sample in family.samples
    }


def in_a_thread(
    observer: RequestObserver,
    batches: Sequence[list[RequestEvent]] | Iterator[list[RequestEvent]],
    after_each: object = None,
) -> float:
    """Pass batches to an observer and close it, in one thread as a server does.

    Returns the processor time of `observe`, in seconds. Raises what the observer raises.

    Args:
        after_each: function that is called after each batch; None: none.
    """
    found: list[float | BaseException] = []

    def run() -> None:
        taken = 0.0
        try:
            for batch in batches:
                begun = time.thread_time()
                observer.observe(batch)
                taken += time.thread_time() - begun
                if callable(after_each):
                    after_each()
            observer.close()
            found.append(taken)
        except BaseException as error:  # noqa: BLE001 - raised again below
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def request_events(
    id: str,
    finish: str,
    *,
    task: str = "generate",
    tenant: str = "alice",
    error: str = "it failed",
    tokens: int = 7,
) -> Iterator[RequestEvent]:
    """Yield the events of one request."""
    started = RequestStarted(
        id=id,
        at=1_800_000_000.0,
        task=task,
        tenant=tenant,
        tenant_is_key=bool(tenant),
        priority=0,
        deferrable=False,
        prompt_tokens=12,
        max_tokens=None if task == "embed" else 16,
    )
    yield started
    if tokens and task == "generate":
        yield RequestFirstToken(
            id=id, at=1_800_000_000.5, queued_s=0.25, cached_tokens=4, started=started, first_token_s=0.5
        )
    yield RequestEnded(
        started=started,
        at=1_800_000_001.0,
        finish=finish,
        error_kind="EngineError" if finish == "error" else "",
        error=error if finish == "error" else "",
        output_tokens=tokens,
        cached_tokens=4 if tokens else 0,
        queued_s=0.25 if tokens else 0.0,
        first_token_s=0.5 if tokens else None,
        duration_s=1.0,
        restarts=0,
    )


def interleaved(num: int, seed: int) -> list[RequestEvent]:
    """Return the mixed events of `num` requests of several tenants. Each request's events are in order."""
    rng = random.Random(seed)
    open_requests = [
        list(request_events(f"{seed}-{i}", rng.choice(FINISHES), tenant=rng.choice(["", "alice", "bob"])))
        for i in range(num)
    ]
    return mixed(open_requests, rng)


def cut(events: Sequence[RequestEvent], seed: int) -> list[list[RequestEvent]]:
    """Cut events into batches of random sizes."""
    rng, found, start = random.Random(seed), [], 0
    while start < len(events):
        end = start + rng.choice([1, 2, 30, 500])
        found.append(list(events[start:end]))
        start = end
    return found
