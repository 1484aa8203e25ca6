"""Sends requests to a plugin's route, and checks that they cause no unexpected error and do not block the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx
from litestar import Litestar, Router
from litestar.routes import HTTPRoute

from llmfw.core.base.described import described
from llmfw.core.interfaces.operation import Operation

from .sample_body import sample
from .verdict import Promise

NO_ENGINE = "`llmfw check` has no engine"
MAX_BLOCK_S = 0.2
"""Seconds for which a route may hold the event loop, with which all requests of a server wait."""
MAX_WAIT_S = 20.0
"""Seconds to wait for a reply. A route that streams without an end is not checked further."""
TICK_S = 0.02
WRITES = ("POST", "PUT", "PATCH")
ODD = ("", "[]", "{}", '{"a": {"b": [null, 1e400]}}')
"""Bodies that any route that reads JSON has to expect from clients."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a route.

    Attributes:
        body: text of the body; None: none.
    """

    method: str
    path: str
    body: str | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of a request.

    Attributes:
        error: exception that was not expected, if any.
        has_ended: whether the reply was complete in time.
        wants_engine: whether the route needs an engine to answer.
        blocked_s: longest time in seconds for which the event loop was blocked.
    """

    error: BaseException | None = None
    has_ended: bool = True
    wants_engine: bool = False
    blocked_s: float = 0.0


async def check_answers(app: Any, found: Any) -> list[Promise]:
    """Request each path that needs no parameters; return the promises that these paths answer and do not block."""
    gets = Promise("a_GET_without_parameters_is_answered")
    writes = Promise("a_request_with_a_body_is_answered")
    blocks = Promise("it_does_not_block_the_event_loop")
    gets.reason = "it has no GET without parameters in its path"
    writes.reason = f"it has no {', '.join(WRITES)} without parameters in its path"
    blocks.reason = "it has no path without parameters"
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        for call in _calls(found):
            promise = gets if call.method == "GET" else writes
            await _check(http, call, promise, blocks)
            if promise.broken or blocks.broken:
                break
    for promise in (gets, writes, blocks):
        promise.skipped += not promise.kept and not promise.skipped and not promise.broken
    return [gets, writes, blocks]


async def _check(http: httpx.AsyncClient, call: Call, promise: Promise, blocks: Promise) -> None:
    outcome = await _send(http, call)
    shown = f"{call.method} {call.path}" + ("" if call.body is None else f" with the body {call.body[:80]!r}")
    for _ in range(2):  # twice more, because a busy machine may have paused the process
        if outcome.blocked_s <= MAX_BLOCK_S:
            break
        outcome.blocked_s = min(outcome.blocked_s, (await _send(http, call)).blocked_s)
    if outcome.error is not None:
        broken(promise, outcome.error, f"{shown}: {described(outcome.error)}")
    elif outcome.wants_engine:
        promise.skipped += 1
        promise.reason = f"{shown} wants an engine; {NO_ENGINE}"
    elif not outcome.has_ended:
        promise.skipped += 1
        promise.reason = f"{shown} did not end within {MAX_WAIT_S:g} s"
    else:
        promise.kept += 1
    if outcome.blocked_s > MAX_BLOCK_S:
        blocks.broken = 1
        blocks.reason = (
            f"{shown} held the event loop for {outcome.blocked_s:.2f} s, and every other request with it; await slow "
            "work, or run it in a thread"
        )
    else:
        blocks.kept += 1


async def _send(http: httpx.AsyncClient, call: Call) -> Outcome:
    """Send a request, and watch the event loop meanwhile."""
    outcome = Outcome()
    headers = {} if call.body is None else {"content-type": "application/json"}
    watching = asyncio.create_task(_watch(outcome))
    await asyncio.sleep(0)
    with _Raised() as raised:
        try:
            async with asyncio.timeout(MAX_WAIT_S) as limit:
                reply = await http.request(call.method, call.path, content=call.body, headers=headers)
            outcome.has_ended = not limit.expired()  # a reply after the cancellation does not count
            outcome.wants_engine = reply.status_code >= 500 and NO_ENGINE in reply.text
        except TimeoutError:
            outcome.has_ended = False
    await asyncio.sleep(2 * TICK_S)  # so that the watch sees the last block
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    if outcome.has_ended and not outcome.wants_engine:  # otherwise the check itself caused the error
        outcome.error = raised.error
    return outcome


async def _watch(outcome: Outcome) -> None:
    """Note the longest time between two ticks."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(TICK_S)
        now = time.monotonic()
        outcome.blocked_s = max(outcome.blocked_s, now - last - TICK_S)
        last = now


def _calls(found: Any) -> Iterator[Call]:
    """Yield the requests to a route's paths without parameters."""
    app = Litestar([Router("/", route_handlers=[found])], openapi_config=None, logging_config=None)
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or route.path_parameters:
            continue
        for handler in route.route_handlers:
            if "GET" in handler.http_methods:
                yield Call("GET", route.path)
            for method in WRITES:
                if method in handler.http_methods:
                    yield from (Call(method, route.path, body) for body in _bodies(handler.opt))


def _bodies(options: Any) -> Sequence[str]:
    """Return bodies to send: first a body of each kind that the route describes, then unusual ones."""
    operations = [value for value in dict(options).values() if isinstance(value, Operation)]
    described = [body for each in operations if (body := sample(each.body)) is not None]
    return [*described, *ODD]


def broken(promise: Promise, error: BaseException, reason: str) -> Promise:
    """Mark a promise as broken by an exception, and return it."""
    promise.broken, promise.reason = 1, reason
    promise.traceback = "".join(traceback.format_exception(error))
    return promise


class _Raised(logging.Handler):
    """Captures an exception that is logged within the `with` block, and keeps it out of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._logger = logging.getLogger("llmfw")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.error = record.exc_info[1]

    def __enter__(self) -> Self:
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
