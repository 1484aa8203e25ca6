"""Middleware that runs requests in a task of its own never gives one tenant what is another's."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.api.services.middleware import Middleware
from llmfw.core import HTTPMiddleware
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import byte_tokenizer, serving

KEYS = (("alice", "alice-0123456789abcdef"), ("bob", "bob-0123456789abcdef"))

NUM_REQUESTS = 5


class Queue(HTTPMiddleware):
    """Handles one request at a time, in a task that the first request starts."""

    def __init__(self) -> None:
        super().__init__(self.Options())
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.worker: asyncio.Task[None] | None = None

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        if self.worker is None:
            self.worker = asyncio.create_task(self.work())
        done = asyncio.get_running_loop().create_future()
        await self.queue.put((app, (scope, receive, send), done))
        await done

    async def work(self) -> None:
        for _ in range(NUM_REQUESTS):
            app, arguments, done = await self.queue.get()
            done.set_result(await app(*arguments))


def upload(url: str, key: str) -> str:
    files = {"purpose": (None, "user_data"), "file": ("a.txt", b"secret")}
    reply = httpx.post(f"{url}/v1/files", files=files, headers=key_of(key))
    return str(reply.raise_for_status().json()["id"])


def key_of(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {dict(KEYS)[name]}"}


@pytest.mark.parametrize("outside", [False, True])
def test_a_worker_task_keeps_tenants_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, outside: bool
) -> None:
    caplog.set_level(logging.INFO)
    layer = Middleware(Queue(), ComponentCalls(Entry("middleware", "q", "x:Y", "p", "p", "1")), outside)
    options: dict[str, Any] = {"api_key": KEYS, "middleware_objects": (layer,)}
    with serving(EchoEngine(), byte_tokenizer(tmp_path), **options) as served:
        own = upload(served.url, "alice")
        listed = httpx.get(f"{served.url}/v1/files", headers=key_of("bob")).json()["data"]
        assert listed == []
        assert httpx.get(f"{served.url}/v1/files/{own}", headers=key_of("bob")).status_code == 404
        assert httpx.get(f"{served.url}/v1/files/{own}", headers=key_of("alice")).status_code == 200
        assert httpx.get(f"{served.url}/health").status_code == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "llmfw.access"]
    tenants = [line.partition("tenant=")[2].split(" ")[0] for line in lines]
    assert tenants == ["alice", "bob", "bob", "alice", ""]
