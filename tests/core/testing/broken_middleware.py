"""Middleware that each breaks one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import pytest

from llmfw.core import HTTPMiddleware
from llmfw.core.testing import HTTPMiddlewareTests


class Broken(HTTPMiddleware):
    """Passes requests on, and each message of the reply through `changed`."""

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def changed(message: Any) -> None:
            await send(self.changed(message))

        await app(scope, receive, changed)

    def changed(self, message: Any) -> Any:
        return message


class HidesErrors(Broken):
    def changed(self, message: Any) -> Any:
        return {**message, "status": 200} if message.get("status") == 503 else message


class GrowsBody(Broken):
    """Adds to a body without a change of content-length."""

    def changed(self, message: Any) -> Any:
        return {**message, "body": message["body"] + b" "} if "body" in message else message


class BuffersStreams(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        held: list[Any] = []

        async def hold(message: Any) -> None:
            held.append(message)

        try:
            await app(scope, receive, hold)
        finally:
            for message in held:
                await send(message)


class SwallowsErrors(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # noqa: BLE001
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})


class EndsBrokenStreams(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        started = False

        async def noted(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except Exception:
            if not started:
                raise
            await send({"type": "http.response.body"})


class IgnoresCancelling(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            await send({"type": "http.response.start", "status": 499, "headers": []})
            await send({"type": "http.response.body"})


class SharesOneSend(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        self.send = send

        async def to_last(message: Any) -> None:
            await self.send(message)

        await app(scope, receive, to_last)


class ReadsAscii(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        assert all(value.decode("ascii") is not None for _, value in scope["headers"])
        await app(scope, receive, send)


class TakesHeadersForADict(Broken):
    def changed(self, message: Any) -> Any:
        return (
            {**message, "headers": list(dict(message["headers"]).items())}
            if "headers" in message
            else message
        )


class NormalizesPaths(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "path": scope["path"].rstrip("/")}, receive, send)


class Computes(Broken):
    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        await app(scope, receive, send)


class KeepsPaths(Broken):
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.seen: dict[str, int] = {}

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        self.seen[scope["path"]] = self.seen.get(scope["path"], 0) + 1
        await app(scope, receive, send)


class DropsTheBody(Broken):
    """Reads the request, and does not give it to the application."""

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await app(scope, receive, send)


class HoldsTheStart(Broken):
    """Passes the start of a reply on with the first part of the body, which it has no part in."""

    skips_events = True

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        held: list[Any] = []

        async def hold(message: Any) -> None:
            held.append(message)
            if message["type"] == "http.response.body":
                while held:
                    await send(held.pop(0))

        await app(scope, receive, hold)


class MarksErrorsOnly(Broken):
    """Adds a header to replies with an error, and is meant to add it to all."""

    conformance: ClassVar = {"examples": [{"expected_headers": [(b"x-served-by", b"a")]}]}

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def send_marked(message: Any) -> None:
            if message.get("status", 0) >= 400:
                message["headers"] = [*message["headers"], (b"x-served-by", b"a")]
            await send(message)

        await app(scope, receive, send_marked)


def _tests_of(broken: type[Broken]) -> type[Any]:
    def middleware(self: object) -> HTTPMiddleware:
        return broken(HTTPMiddleware.Options())

    return type(f"Test{broken.__name__}", (HTTPMiddlewareTests,), {"middleware": pytest.fixture(middleware)})


for _broken in Broken.__subclasses__():
    globals()[f"Test{_broken.__name__}"] = _tests_of(_broken)
