"""Sends requests to POST /generate as SGLang's clients do."""

from __future__ import annotations

import json
from typing import Any

from ..doubles.serving import Served


def generate(server: Served, **body: Any) -> Any:
    """Return the body of a reply."""
    reply = server.post("/generate", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def events_of(server: Served, **body: Any) -> list[dict[str, Any]]:
    """Return the events of a stream."""
    reply = server.post("/generate", {**body, "stream": True})
    assert reply.status_code == 200, reply.text
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: ")]


def refusal_of(server: Served, **body: Any) -> dict[str, Any]:
    """Return the error of a refused request."""
    reply = server.post("/generate", body)
    assert reply.status_code == 400, reply.text
    return dict(reply.json()["error"])


def sampled(server: Served, text: str, **sampling: Any) -> dict[str, Any]:
    """Return the reply to a text with these sampling parameters."""
    return dict(generate(server, text=text, sampling_params=sampling))
