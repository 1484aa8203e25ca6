"""The outcome of one request, and the parser of its stream of server-sent events. Does not depend on HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass
class Reply:
    """One request and its reply. Times are seconds of one monotonic clock.

    Attributes:
        wanted: number of output tokens asked for.
        turn: index of the request in its conversation, from 0.
        due: time for which the request was planned; None: it was sent as soon as another one had ended.
        started, ended: times at which the request was sent and the reply's last byte arrived.
        times: arrival times of the events that contain text.
        text: text of the whole reply.
        prompt_tokens, output_tokens, cached_tokens: the server's own counts; None if it reported none.
        status: HTTP status; None if there was no response.
        error: why the request failed; None if it succeeded.
    """

    wanted: int
    turn: int = 0
    due: float | None = None
    started: float = 0.0
    ended: float = 0.0
    times: list[float] = field(default_factory=list)
    text: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    status: int | None = None
    error: str | None = None


def parse_stream(reads: list[tuple[float, bytes]], reply: Reply) -> None:
    """Parse a stream of server-sent events; store its text, times, usage and errors in `reply`.

    The time of an event is the time of the network read that completed the event's line. If no event contains
    text (a model may write only parts of characters), the times are those of the events with a choice.
    """
    texts: list[str] = []
    silent: list[float] = []
    rest = b""
    for time_read, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _parse_line(line.rstrip(b"\r"), time_read, reply, texts, silent)
    if rest:
        _parse_line(rest, reads[-1][0], reply, texts, silent)
    reply.text = "".join(texts)
    reply.times = reply.times or silent
    if reply.error is None and reply.output_tokens is None:
        reply.error = "the stream has no usage, from which tokens are counted"


def _parse_line(line: bytes, time_read: float, reply: Reply, texts: list[str], silent: list[float]) -> None:
    if not line or line.startswith((b":", b"event:", b"id:", b"retry:")):
        return
    if not line.startswith(b"data:"):
        reply.error = reply.error or f"not a stream of events: {shorten(line.decode(errors='replace'))}"
        return
    payload = line[5:].strip()
    if payload == b"[DONE]":
        return
    try:
        event = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        event = None
    if not isinstance(event, dict):
        reply.error = (
            reply.error or f"an event is not a JSON object: {shorten(payload.decode(errors='replace'))}"
        )
        return
    if event.get("error"):
        reply.error = reply.error or f"error in the stream: {error_message(payload)}"
        return
    _count_usage(event.get("usage"), reply)
    for choice in event.get("choices") or ():
        silent.append(time_read)
        if text := _text_of(choice):
            texts.append(text)
            reply.times.append(time_read)


def _text_of(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return choice["text"] or ""
    delta = choice.get("delta") or {}
    return delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""


def _count_usage(usage: dict[str, Any] | None, reply: Reply) -> None:
    if not usage:
        return
    reply.prompt_tokens = usage.get("prompt_tokens")
    reply.output_tokens = usage.get("completion_tokens")
    reply.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def error_message(body: bytes) -> str:
    """Return the message in an error response's body as one line.

    Understands the formats that servers use.
    """
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return shorten(body.decode(errors="replace"))
    for key in ("error", "detail", "message"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return shorten(found if isinstance(found, str) else msgspec.json.encode(found).decode())


def shorten(text: str, most: int = 300) -> str:
    """Return the text in one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
