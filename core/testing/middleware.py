"""Conformance tests of the `HTTPMiddleware` interface."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from llmfw.core.interfaces.middleware import (
    ASGIApplication,
    ASGIMessage,
    ASGIReceive,
    ASGIScope,
    ASGISend,
    HTTPMiddleware,
)

from .declared import declared
from .exchange import EVENTS, JSON, Application, exchange, request_scope, run_in_loop
from .long_values import brief
from .middleware_example import MiddlewareExample

MAX_REQUEST_S = 2e-3
"""Processor time that a request may take in the middleware, on average, as all requests share one thread."""
MAX_KEPT = 1_000
"""Blocks of memory that the middleware may keep of 2,000 requests; one that keeps all has more than 2,000."""
ODD_HEADERS = [
    (b"accept-encoding", b"gzip;q=x, \xff,, br"),
    (b"accept-encoding", b"*;q=0"),
    (b"authorization", b"Bearer \xe9\xff"),
    (b"authorization", b""),
    (b"origin", b"null"),
    (b"origin", b"https://[::1"),
    (b"content-length", b"nine"),
    (b"content-type", b"\xff;;="),
    (b"cookie", b"a=b; =; \x80"),
    (b"x-request-id", b"x" * 8_000),
    (b"range", b"bytes=-"),
    (b"host", b"@@:x"),
]


class ApplicationError(Exception):
    """Raised by the application inside the middleware."""


class HTTPMiddlewareTests:
    """Conformance tests of middleware.

    Derive from this class and override the fixture `middleware`. If the middleware answers some requests
    itself, also override `headers`: headers of a request that it passes on.
    """

    @pytest.fixture
    def middleware(self) -> HTTPMiddleware:
        """Return the middleware under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture middleware")

    @pytest.fixture
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request that the middleware passes on."""
        return [(b"content-type", b"application/json"), (b"accept-encoding", b"gzip")]

    @pytest.fixture
    def max_request_s(self) -> float:
        """Return the processor time in seconds that a request may take, on average."""
        return MAX_REQUEST_S

    @pytest.fixture
    def examples(self, middleware: HTTPMiddleware) -> Sequence[MiddlewareExample]:
        """Return example requests, the application's replies, and the expected replies.

        By default, reads the class's `conformance`: a list of mappings with the attributes of
        `MiddlewareExample`.
        """
        found: Sequence[dict[str, Any]] = declared(middleware, "examples", ())
        return [MiddlewareExample(**each) for each in found]

    def test_the_replies_of_the_examples_are_sent(
        self, middleware: HTTPMiddleware, examples: Sequence[MiddlewareExample]
    ) -> None:
        if not examples:
            pytest.skip(
                "the middleware does not have the capability examples (requests with the replies that they get)"
            )
        for example in examples:
            check_example(middleware, example)

    @pytest.mark.parametrize("status", [200, 204, 304, 400, 404, 500, 503])
    @pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
    def test_a_reply_passes(self, middleware: HTTPMiddleware, headers: Any, method: str, status: int) -> None:
        has_body = method != "HEAD" and status not in (204, 304)
        body = b'{"text": "%s"}' % (b"again " * 1_000) if has_body else b""
        got = exchange(middleware, method=method, headers=headers, status=status, reply=[body])
        assert (got.status, brief(got.body)) == (status, brief(body))

    @pytest.mark.parametrize("size", [0, 1, 1_000, 70_000, 1_000_000])
    def test_bodies_of_any_size_pass(self, middleware: HTTPMiddleware, headers: Any, size: int) -> None:
        sent, reply = [b"x" * size, b"", b"y" * size], b"z" * size
        got = exchange(middleware, headers=headers, body=sent, reply=[reply])
        assert brief(got.body_read) == brief(b"".join(sent))
        assert brief(got.body) == brief(reply)

    @pytest.mark.parametrize("kind", [EVENTS, JSON, (b"content-type", b"application/octet-stream")])
    def test_streams_are_not_held_back(self, middleware: HTTPMiddleware, headers: Any, kind: Any) -> None:
        """The application sends each part once the client has received the previous part."""
        parts = [b"data: %d\n\n" % i for i in range(20)]

        async def check() -> None:
            got: list[bytes] = []

            async def app(scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": [kind]})
                for i, part in enumerate(parts):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    assert len(got) > i, "a part of a stream was held back"
                await send({"type": "http.response.body", "body": b"", "more_body": False})

            async def send(message: ASGIMessage) -> None:
                if message.get("body"):
                    got.append(bytes(message["body"]))

            await middleware.handle(app, request_scope(headers=headers), _no_body, send)
            if kind is EVENTS:
                assert got == parts

        run_in_loop(check)

    def test_skipped_events_have_a_start(self, middleware: HTTPMiddleware, headers: Any) -> None:
        """With `skips_events`, events bypass the middleware once it has received the start of the reply."""
        if not middleware.skips_events:
            pytest.skip("events pass through it")

        async def check() -> None:
            got: list[str] = []

            async def app(scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": [EVENTS]})
                assert got == ["http.response.start"], "the start of the reply was held back"
                await send({"type": "http.response.body", "body": b"", "more_body": False})

            async def send(message: ASGIMessage) -> None:
                got.append(message["type"])

            await middleware.handle(app, request_scope(headers=headers), _no_body, send)
            assert got == ["http.response.start", "http.response.body"]

        run_in_loop(check)

    def test_errors_of_the_application_pass(self, middleware: HTTPMiddleware, headers: Any) -> None:
        async def app(scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
            raise ApplicationError

        with pytest.raises(ApplicationError):
            exchange(middleware, headers=headers, app=app)

    def test_errors_in_a_stream_pass(self, middleware: HTTPMiddleware, headers: Any) -> None:
        async def app(scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [EVENTS]})
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            raise ApplicationError

        with pytest.raises(ApplicationError):
            exchange(middleware, headers=headers, app=app)

    def test_a_cancelled_request_ends(self, middleware: HTTPMiddleware, headers: Any) -> None:
        async def check() -> None:
            begun = asyncio.Event()

            async def app(scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
                begun.set()
                await asyncio.sleep(3_600)

            made = Application((), 200, (), ())
            task = asyncio.ensure_future(made.ask(middleware, request_scope(headers=headers), app))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run_in_loop(check)

    def test_concurrent_requests_stay_apart(self, middleware: HTTPMiddleware, headers: Any) -> None:
        async def check() -> None:
            made = [Application([b"%d" % i * 50], 200, [b"%d" % i * 2_000], [JSON]) for i in range(40)]
            await asyncio.gather(
                *(
                    each.ask(middleware, request_scope(path=f"/v1/files/{i}", headers=headers))
                    for i, each in enumerate(made)
                )
            )
            for i, each in enumerate(made):
                assert each.reply.body_read == b"%d" % i * 50
                assert brief(each.reply.body) == brief(b"%d" % i * 2_000)

        run_in_loop(check)

    def test_odd_headers_break_nothing(self, middleware: HTTPMiddleware) -> None:
        for each in ([], *([header] for header in ODD_HEADERS), ODD_HEADERS):
            for method in ("POST", "OPTIONS"):
                assert exchange(middleware, method=method, headers=each).status < 500

    def test_repeated_headers_of_replies_are_kept(self, middleware: HTTPMiddleware, headers: Any) -> None:
        cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        got = exchange(middleware, headers=headers, reply_headers=[JSON, *cookies])
        assert [each for each in got.messages[0]["headers"] if each[0] == b"set-cookie"] == cookies

    def test_the_path_stays_after_authentication(self, middleware: HTTPMiddleware, headers: Any) -> None:
        if middleware.before_authentication:
            pytest.skip("it stands before the check of keys, and may change the path")
        for path in ("/v1/models", "/v1//files/", "/health", "/admin/cache", "/é"):
            assert exchange(middleware, path=path, headers=headers).path in (path, None)

    def test_a_request_costs_little(
        self, middleware: HTTPMiddleware, headers: Any, max_request_s: float
    ) -> None:
        """Measures processor time for 200 requests, without the time of the test's own application."""
        plain = _timed(_Passing(HTTPMiddleware.Options()), headers, 200)
        taken = (_timed(middleware, headers, 200) - plain) / 200
        assert taken <= max_request_s, f"{1e6 * taken:.0f} us of processor time per request"

    def test_ended_requests_are_forgotten(self, middleware: HTTPMiddleware, headers: Any) -> None:
        """Data kept for each request would grow without limit."""
        counts = []
        for run in range(3):
            for _ in _asked_one_by_one(middleware, headers, 2_000, f"{run}"):
                pass
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 2,000 further requests"


def check_example(middleware: HTTPMiddleware, example: MiddlewareExample) -> None:
    """Pass an example's request through middleware, and compare the reply with the expected reply."""
    got = exchange(
        middleware,
        method=example.method,
        path=example.path,
        headers=example.headers,
        status=example.status,
        reply=example.reply,
        reply_headers=example.reply_headers,
    )
    length = sum(len(message.get("body", b"")) for message in got.messages[1:])
    expected = list(example.expected_headers)
    if example.is_passed_on and len(example.reply) <= 1:
        expected.append((b"content-length", b"%d" % length))
    found = [(bytes(name).lower(), bytes(value)) for name, value in got.messages[0]["headers"]]
    assert sorted(found) == sorted(expected), f"the headers of the reply to {example}"
    assert got.status == (example.status if example.expected_status is None else example.expected_status)
    assert (got.path is not None) == example.is_passed_on, (
        f"whether the application gets the request of {example}"
    )
    assert brief(got.body) == brief(b"".join(example.reply) if example.is_passed_on else b"")


class _Passing(HTTPMiddleware):
    async def handle(
        self, app: ASGIApplication, scope: ASGIScope, receive: ASGIReceive, send: ASGISend
    ) -> None:
        await app(scope, receive, send)


async def _no_body() -> ASGIMessage:
    return {"type": "http.request", "body": b"", "more_body": False}


def _timed(middleware: HTTPMiddleware, headers: Any, num: int) -> float:
    begun = time.thread_time()
    for _ in _asked_one_by_one(middleware, headers, num, "t"):
        pass
    return time.thread_time() - begun


def _asked_one_by_one(middleware: HTTPMiddleware, headers: Any, num: int, run: str) -> Iterator[None]:
    """Pass requests with paths and ids of their own through the middleware, on one event loop."""
    with asyncio.Runner() as runner:
        for i in range(num):
            own = [*headers, (b"x-request-id", f"{run}-{i}".encode())]
            made = Application([b"{}"], 200, [b'{"object": "reply"}'], [JSON])
            runner.run(made.ask(middleware, request_scope(path=f"/v1/files/{run}-{i}", headers=own)))
            yield


__all__ = ["HTTPMiddlewareTests", "exchange"]
