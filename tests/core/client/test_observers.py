"""Observers get all events in order, and nothing waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily

from llmfw.core.client import observers as module
from llmfw.core.client.observers import Observers, ObserverThread
from llmfw.core.interfaces.observer import RequestEvent, RequestObserver
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing.observers import request_events

ENTRY = Entry("observer", "watcher", "tests:Watcher", "ours", "llmfw-ours", "1.0")


class Watcher(RequestObserver):
    """Keeps what it gets, after a function was called with it."""

    def __init__(self, before: Callable[[Watcher], Any] = lambda watcher: None) -> None:
        super().__init__(self.Options())
        self.before = before
        self.calls: list[list[RequestEvent]] = []
        self.threads: set[int] = set()
        self.is_closed = False

    def observe(self, events: Sequence[RequestEvent]) -> None:
        self.threads.add(threading.get_ident())
        self.before(self)
        self.calls.append(list(events))

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True

    @property
    def events(self) -> list[RequestEvent]:
        return [event for call in self.calls for event in call]


def started(watcher: Watcher) -> tuple[ObserverThread, ComponentCalls]:
    """Return the thread of an observer, with guarded methods as in a server."""
    calls = ComponentCalls(ENTRY)
    watcher.__class__ = guarded(Watcher, RequestObserver, calls)
    return ObserverThread(watcher, calls), calls


def some(num: int) -> list[RequestEvent]:
    return [event for i in range(num) for event in request_events(str(i), "stop")]


async def test_all_events_arrive_in_order_before_the_end() -> None:
    watchers, observers, events = [Watcher(), Watcher()], Observers(), some(100)
    for watcher in watchers:
        observers.add(started(watcher)[0])
    for event in events:
        observers.report(event)
    await observers.close()
    assert all(watcher.events == events and watcher.is_closed for watcher in watchers)
    assert all(len(watcher.threads) == 1 for watcher in watchers)
    assert threading.get_ident() not in watchers[0].threads


async def test_events_are_passed_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.05)
    watcher, observers = Watcher(), Observers()
    observers.add(started(watcher)[0])
    for event in some(10):
        observers.report(event)
    assert watcher.calls == []
    await asyncio.sleep(0.2)
    assert len(watcher.calls) == 1
    await observers.close()


def test_nothing_waits_for_a_slow_observer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 30)
    release = threading.Event()
    watcher = Watcher(lambda watcher: release.wait(10))
    thread, calls = started(watcher)
    begun = time.monotonic()
    thread.put(some(1))
    while thread._num_taken == 0:
        time.sleep(0.001)
    for _ in range(20):
        thread.put(some(2))
    assert time.monotonic() - begun < 1
    release.set()
    thread.end()
    assert thread.join(5)
    assert len(watcher.events) == 3 + 30
    assert calls.dropped == 20 * 6 - 30
    assert [record.getMessage() for record in caplog.records] == [
        "Observer 'watcher' did not get 6 events, 6 since the start: it cannot keep up"
    ]


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, SystemExit])
def test_a_failing_observer_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)

    def fail_once(watcher: Watcher) -> None:
        if not watcher.threads_seen:  # type: ignore[attr-defined]
            watcher.threads_seen = True  # type: ignore[attr-defined]
            raise error("no")

    watcher = Watcher(fail_once)
    watcher.threads_seen = False  # type: ignore[attr-defined]
    thread, calls = started(watcher)
    thread.put(some(1))
    while not calls.dropped:
        time.sleep(0.001)
    thread.put(some(2))
    thread.end()
    assert thread.join(5)
    assert (calls.failures, calls.dropped, len(watcher.events)) == (1, 3, 6)
    assert watcher.is_closed


async def test_a_hanging_observer_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    release, observers = threading.Event(), Observers()
    observers.add(started(Watcher(lambda watcher: release.wait(10)))[0])
    observers.report(some(1)[0])
    begun = time.monotonic()
    await observers.close()
    release.set()
    assert time.monotonic() - begun < 2
    assert "Observer 'watcher' does not end" in caplog.text


async def test_without_observers_nothing_waits() -> None:
    observers = Observers()
    await observers.close()
    assert observers.threads == []


class Counting(Watcher):
    """Has the number of its events as a metric."""

    def metrics(self) -> list[Any]:
        self.threads.add(threading.get_ident())
        family = GaugeMetricFamily("events", "Events so far.", len(self.events))
        return [family]


def counting(watcher: Watcher) -> tuple[ObserverThread, ComponentCalls]:
    calls = ComponentCalls(ENTRY)
    watcher.__class__ = guarded(type(watcher), RequestObserver, calls)
    return ObserverThread(watcher, calls), calls


async def test_metrics_have_all_events_so_far() -> None:
    watcher, observers = Counting(), Observers()
    observers.add(counting(watcher)[0])
    for event in some(20):
        observers.report(event)
    [family] = await observers.metrics()
    assert family.samples[0].value == 60
    assert len(watcher.threads) == 1
    assert threading.get_ident() not in watcher.threads
    await observers.close()


async def test_a_scrape_waits_for_no_slow_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "METRICS_S", 0.1)
    release = threading.Event()
    slow, quick, observers = Counting(lambda watcher: release.wait(20)), Counting(), Observers()
    observers.add(counting(slow)[0])
    observers.add(counting(quick)[0])
    observers.report(some(1)[0])
    assert [family.samples[0].value for family in await observers.metrics()] == [1]
    release.set()
    await observers.close()


class Broken(Watcher):
    """Fails after its first family."""

    def metrics(self) -> Any:
        yield GaugeMetricFamily("good", "", 1)
        yield "no metric"


async def test_broken_metrics_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    thread, calls = counting(Broken())
    observers.add(thread)
    assert await observers.metrics() == []
    assert calls.failures == 1
    assert "failed in metrics(): TypeError: metrics() returned 'no metric'" in caplog.text
    assert await observers.metrics() == []
    await observers.close()
