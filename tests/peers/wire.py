"""Sends the same request to chats and to completions, streamed and not."""

from __future__ import annotations

import json
from typing import Any

from ..doubles.serving import Served

ROUTES = ("chat", "completions")


def post(server: Served, route: str, text: str, **fields: Any) -> Any:
    """Send a text as the message of a chat or as a prompt; return the reply."""
    if route == "completions":
        return server.post("/v1/completions", {"prompt": text, **fields})
    return server.chat(text, **fields)


def ask(server: Served, route: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return the body of a reply."""
    reply = post(server, route, text, **fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def chunks_of(server: Served, route: str, text: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the chunks of a stream."""
    reply = post(server, route, text, **fields, stream=True)
    assert reply.status_code == 200, reply.text
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def error_of(server: Served, route: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return the error of a refused request."""
    reply = post(server, route, text, **fields)
    assert reply.status_code == 400, reply.text
    return dict(reply.json()["error"])


def text_of(choice: dict[str, Any]) -> str:
    """Return the text of a choice, or the new text of a chunk's."""
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("message") or choice["delta"]).get("content") or "")
