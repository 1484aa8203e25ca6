"""A stored response that cannot be read is a 500 whose log line names the store; no client gets the damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from llmfw.plugins.store_memory.responses import MemoryResponses

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving


class Damaged(MemoryResponses):
    """Returns records in which `changes` replace fields."""

    def __init__(self) -> None:
        super().__init__(None, 2**20)
        self.changes: dict[str, Any] = {}
        self.left: list[str] = []

    async def get(self, response_id: str) -> Any:
        return msgspec.structs.replace(await super().get(response_id), **self.changes)

    async def conversation(self, response_id: str) -> Any:
        found = await super().conversation(response_id)
        return [msgspec.structs.replace(record, **self.changes) for record in found]

    async def unfinished(self) -> Any:
        return [await self.get(response_id) for response_id in self.left]

    async def close(self) -> None:
        """Keep the responses for the next server."""


@contextmanager
def serving_damaged(tmp_path: Path, store: Damaged) -> Iterator[Served]:
    stores = {"responses": store, "response_store": "cracked"}
    with serving(EchoEngine(), byte_tokenizer(tmp_path), stores=stores) as served:
        yield served


RESPONSES = [b"{{{", b"", b"[]", b'{"id": "resp_0", "background": false, "output": []}', b"\xff", b"[" * 5000]
INPUTS = [b"{{{", b"", b"{}", b"[3]", b'[{"role": "user"}]', b"[" * 5000]


def damages() -> list[tuple[str, bytes, str]]:
    """Return the field, its damaged content, and the route that reads it."""
    read_response = ("get", "cancel")
    read_input = ("items", "continue")
    return [("response", data, route) for data in RESPONSES for route in read_response] + [
        ("input", data, route) for data in INPUTS for route in read_input
    ]


def ask(served: Served, route: str, response_id: str) -> httpx.Response:
    url = f"{served.url}/v1/responses/{response_id}"
    if route == "get":
        return httpx.get(url)
    if route == "cancel":
        return httpx.post(f"{url}/cancel")
    if route == "items":
        return httpx.get(f"{url}/input_items")
    return served.post("/v1/responses", {"input": "and", "previous_response_id": response_id})


def test_a_damaged_response_names_its_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Damaged()
    with serving_damaged(tmp_path, store) as served:
        response_id = served.post("/v1/responses", {"input": "hello"}).json()["id"]
        for field, data, route in damages():
            store.changes, _ = {field: data}, caplog.clear()
            reply = ask(served, route, response_id)
            assert (reply.status_code, reply.json()["error"]["code"]) == (500, "storage_damaged"), (
                data,
                route,
            )
            assert (
                f"store 'cracked' returned a damaged record of '{response_id}': its `{field}`" in caplog.text
            )
        assert httpx.delete(f"{served.url}/v1/responses/{response_id}").status_code == 200


def test_a_damaged_unfinished_response_stops_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Damaged()
    with serving_damaged(tmp_path, store) as served:
        response_id = served.post("/v1/responses", {"input": "hello"}).json()["id"]
    store.changes, store.left = {"response": b"{{{"}, [response_id]
    with serving_damaged(tmp_path, store) as served:
        assert httpx.get(f"{served.url}/v1/responses/{response_id}").status_code == 500
    assert "cannot be marked as failed: the response store 'cracked'" in caplog.text
