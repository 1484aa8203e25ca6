"""Tracks an engine's open requests: limits of the queue, timeouts, and reports to waiting clients.

    Engine ──► AdmissionControl ──► QueueGate, Deadlines, Waits

The engine reports each request that arrives, is admitted or ends. Once per step, it asks for the requests
whose timeout has passed, or whose clients are due a report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from llmfw.core.base.request import Request, TokenEvent, Wait

from .deadlines import Deadlines, deadline_error
from .queue_gate import QueueGate
from .waits import Waits

if TYPE_CHECKING:
    from llmfw.core.schedule.scheduler import Scheduler


class AdmissionControl:
    """Tracks the open requests of an engine that generates.

    Args:
        gate: limits of the queue.
        clock: monotonic clock in seconds.
    """

    def __init__(self, gate: QueueGate, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._deadlines = Deadlines()
        self._waits = Waits()
        self._clock = clock

    @property
    def sleep_s(self) -> float | None:
        """Seconds until the next timeout or report is due; None if neither is pending."""
        times = [when for when in (self._deadlines.next, self._waits.next) if when is not None]
        return max(0.0, min(times) - self._clock()) if times else None

    def check(self, request: Request) -> None:
        """Raise OverloadedError or TenantLimitError if the gate refuses a request.

        A request with `Request.output` was admitted before, by another engine, and is never refused.
        """
        if not (request.deferrable or request.output):
            self._gate.check_request(request, len(request.prompt), self._clock())

    def enter(self, request: Request) -> None:
        """Record an accepted request."""
        now = self._clock()
        if not request.deferrable:
            self._gate.enter(request.id, len(request.prompt), request.tenant, is_key=request.tenant_is_key)
        if request.timeout_s is not None:
            self._deadlines.add(request.id, request.timeout_s, now)
        if request.tell_wait:
            self._waits.add(request.id, now)

    def leave(self, request_id: str) -> None:
        """Forget a request that has ended. Unknown ids are ignored."""
        self._gate.leave(request_id, self._clock())
        self._deadlines.forget(request_id)
        self._waits.forget((request_id,))

    def note_admitted(self, scheduler: Scheduler) -> None:
        """Record the requests that a planned step admits: they were waiting and now run."""
        if not self._gate.num_waiting:
            return
        now = self._clock()
        admitted = [seq.id for seq in scheduler.live.running if self._gate.admit(seq.id)]
        self._gate.rate.note(len(admitted), self._gate.num_waiting, now)
        for request_id in admitted:
            self._waits.put_off(request_id, now)

    def note_events(self, events: Iterable[TokenEvent]) -> None:
        """Record the events of a step: stop reports to requests with tokens, and forget requests that have
        ended."""
        if self._waits:
            self._waits.forget(event.id for event in events)
        for event in events:
            if event.finish_reason is not None:
                self.leave(event.id)

    def take_late(self, scheduler: Scheduler) -> list[TokenEvent]:
        """Return the final events of requests whose timeout has passed.

        The engine must then end these requests.
        """
        if self._deadlines.next is None or not (late := self._deadlines.take_due(self._clock())):
            return []
        how_far = _how_far(scheduler)
        return [
            TokenEvent.failed(id, deadline_error(timeout, how_far.get(id, "while its grammar was compiled")))
            for id, timeout in late.items()
        ]

    def tell_waits(self, scheduler: Scheduler) -> list[TokenEvent]:
        """Return one event per report that is due: a request's place in the queue and its expected wait."""
        if not self._waits or not (due := self._waits.take_due(now := self._clock())):
            return []
        places = {seq.id: place for place, seq in enumerate(scheduler.order(scheduler.live))}
        events = []
        for request_id in due:
            if (place := places.get(request_id)) is not None:
                wait = Wait(place, self._gate.rate.seconds_for(place + 1, now))
            elif self._gate.awaits(request_id):
                wait = Wait(len(places))  # its grammar is being compiled, so it comes after the whole queue
            else:
                wait = Wait(0, 0.0)
            events.append(TokenEvent(request_id, [], wait=wait))
        return events


def _how_far(scheduler: Scheduler) -> dict[str, str]:
    """Return the progress of each request, by id, as text for the end of an error message."""
    words: dict[str, str] = {}
    for lane in (scheduler.live, scheduler.deferrable):
        words |= {
            seq.id: "while others were before it" for seq in lane.waiting
        }  # `order` may not include all of them
        for place, seq in enumerate(scheduler.order(lane)):
            before = "1 request was" if place == 1 else f"{place} requests were"
            words[seq.id] = f"while {before} before it"
        for seq in (*lane.running, *(seq for seq in lane.waiting if seq.num_output)):
            words[seq.id] = f"after {seq.num_output} of at most {seq.max_tokens} tokens"
    return words
