"""Passes events to observers, each in a thread of its own, without ever waiting for them."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from llmfw.core.interfaces.observer import RequestEvent, RequestObserver
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.containment import raise_if_process_ends

if TYPE_CHECKING:
    from prometheus_client import Metric

logger = logging.getLogger(__name__)

INTERVAL_S = 0.1
"""Seconds for which events are collected before observers get them."""

MAX_PENDING = 65_536
"""Maximum number of events that wait for one observer; further events are dropped."""

CLOSE_S = 5.0
"""Seconds that `close` waits for all observers together."""

METRICS_S = 2.0
"""Seconds that a scrape waits for the metrics of the observers, which may be in a long call."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 60.0
_WARN_S = 60.0  # shortest time between two warnings about dropped events


_Scrape = Future[list["Metric"]]
"""A request for an observer's metrics."""


class ObserverThread:
    """Calls one observer in a thread of its own.

    Args:
        observer: the observer; only the thread uses it from now on.
        calls: record of its calls. Also counts the events that the observer did not get, and the events that
            were lost when a call raised.
    """

    def __init__(self, observer: RequestObserver, calls: ComponentCalls) -> None:
        self.name = calls.entry.name
        self._calls = calls
        self._observer = observer
        self._queue: queue.SimpleQueue[Sequence[RequestEvent] | _Scrape | None] = queue.SimpleQueue()
        self._scrape: _Scrape | None = None  # taken from the queue after events
        self._num_put = self._num_taken = 0  # each written by one thread
        self._closing = threading.Event()
        self._warned_at = -_WARN_S
        self._dropping = (
            threading.Lock()
        )  # the event loop and the observer's thread both count what is dropped
        self._thread = threading.Thread(target=self._work, name=f"llmfw-observer-{self.name}", daemon=True)
        self._thread.start()

    def put(self, events: Sequence[RequestEvent]) -> None:
        """Pass events on. If too many events are waiting, drop and count the new ones. Returns at once."""
        if self._num_put - self._num_taken + len(events) > MAX_PENDING:
            self._drop(len(events), "it cannot keep up")
            return
        self._num_put += len(events)
        self._queue.put(events)

    def ask_metrics(self) -> Future[list[Metric]]:
        """Return at once with a future of the observer's metric families, after all events put before.

        The future has no families if the observer fails.
        """
        scrape: _Scrape = Future()
        self._queue.put(scrape)
        return scrape

    def end(self) -> None:
        """Ask the thread to pass the waiting events, close the observer, and end. Returns at once."""
        self._closing.set()
        self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; return whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        pause_s = 0.0
        while (events := self._take()) is not None:
            if isinstance(events, Future):
                self._answer(events)
                continue
            if self._tried(partial(self._observer.observe, events)):
                pause_s = 0.0
                continue
            self._drop(len(events), "it failed on them")
            pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LAST_PAUSE_S)
            self._closing.wait(pause_s)
        self._tried(self._observer.close)

    def _take(self) -> list[RequestEvent] | _Scrape | None:
        """Wait for events; return all waiting events, a scrape that came before them, or None at the end."""
        found: list[RequestEvent] = []
        if self._scrape is not None:
            scrape, self._scrape = self._scrape, None
            return scrape
        while not found or not self._queue.empty():
            events = self._queue.get()
            if events is None:
                if not found:
                    return None
                self._queue.put(None)
                break
            if isinstance(events, Future):
                if not found:
                    return events
                self._scrape = events
                break
            found += events
        self._num_taken += len(found)
        return found

    def _answer(self, scrape: _Scrape) -> None:
        if not scrape.set_running_or_notify_cancel():  # the server has given up waiting
            return
        found: list[Metric] = []

        def metrics() -> None:
            found.extend(checked_metrics(self._observer))

        if not self._tried(lambda: self._calls.call(metrics)):
            found.clear()
        scrape.set_result(found)

    def _tried(self, call: Callable[[], None]) -> bool:
        """Call a method of the observer; return whether it succeeded. The guard has logged a failure."""
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; see `plugin.calls`
            raise_if_process_ends(error)
            return False
        return True

    def _drop(self, num: int, why: str) -> None:
        with self._dropping:
            self._calls.dropped += num
            now = time.monotonic()
            if now - self._warned_at < _WARN_S:
                return
            self._warned_at = now
        logger.warning(
            "Observer %r did not get %d events, %d since the start: %s",
            *(self.name, num, self._calls.dropped, why),
        )


def checked_metrics(observer: RequestObserver) -> Iterator[Metric]:
    """Yield an observer's metric families. Raises TypeError for any other object."""
    from prometheus_client import Metric  # observers without metrics do not need it

    for each in observer.metrics():
        if not isinstance(each, Metric):
            raise TypeError(f"metrics() returned {each!r:.80}, which is not a Metric of prometheus_client")
        yield each


class Observers:
    """Collects events, and passes them to all observers every INTERVAL_S.

    Used on one event loop.

    Args:
        declared: names of the request fields that observers may ask for; None: any.

    Attributes:
        threads: the observers.
        declared: the argument.
    """

    def __init__(self, declared: Collection[str] | None = None) -> None:
        self.declared = declared
        self.threads: list[ObserverThread] = []
        self._events: list[RequestEvent] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, thread: ObserverThread) -> None:
        """Add an observer, which gets the events from now on. `close` ends it."""
        self.threads.append(thread)

    def report(self, event: RequestEvent) -> None:
        """Take an event. Returns at once."""
        self._events.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._pass_on)

    async def metrics(self) -> list[Metric]:
        """Return the metric families of all observers, in their order.

        Leaves out observers that do not answer within METRICS_S.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._pass_on()
        asked = [asyncio.wrap_future(thread.ask_metrics()) for thread in self.threads]
        if not asked:
            return []
        done, late = await asyncio.wait(asked, timeout=METRICS_S)
        for each in late:
            each.cancel()
        return [metric for each in asked if each in done for metric in each.result()]

    async def close(self) -> None:
        """Pass all events on, and close the observers. Waits at most CLOSE_S; logs observers that hang."""
        if self._timer is not None:
            self._timer.cancel()
            self._pass_on()
        for thread in self.threads:
            thread.end()
        if self.threads:
            await asyncio.to_thread(self._join)

    def _pass_on(self) -> None:
        self._timer = None
        events, self._events = self._events, []
        for thread in self.threads:
            thread.put(events)

    def _join(self) -> None:
        deadline = time.monotonic() + CLOSE_S
        for thread in self.threads:
            if not thread.join(max(0.0, deadline - time.monotonic())):
                logger.warning("Observer %r does not end; its last events may be lost", thread.name)
