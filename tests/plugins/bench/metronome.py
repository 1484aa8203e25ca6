"""A completion server whose every figure is known: it sends a token each `gap` seconds and counts words as tokens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from litestar import Litestar, Response, get, post
from litestar.response import Stream

from ...doubles.prompt_server import PromptServer


@dataclass
class Metronome:
    """How the server behaves, and what it saw.

    Attributes:
        delay: seconds before the first token.
        gap: seconds between two tokens.
        tokens_per_word: how many tokens each word of a prompt counts; one more for the beginning of the text.
        waits_for: replies of more than one token begin when so many requests were running at once (or after 10 s).
        cached: prompt tokens that usage reports as cached; None: it does not say.
        refuses: fields that are answered with 422.
        stops_after: output tokens after which the model ends its turn, whatever was asked.
        fails: the requests (by number, from 1) that are answered with 500.
        breaks: the requests whose stream ends with an error.
        usage: whether streams end with usage.
    """

    delay: float = 0.0
    gap: float = 0.0
    tokens_per_word: int = 1
    waits_for: int = 0
    cached: int | None = None
    refuses: tuple[str, ...] = ()
    stops_after: int | None = None
    fails: tuple[int, ...] = ()
    breaks: tuple[int, ...] = ()
    usage: bool = True
    bodies: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    url: str = ""

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        """Return the number of tokens of a prompt: text, ids, or messages."""
        prompt = body.get("prompt", "")
        if isinstance(prompt, list):
            return len(prompt)
        text = prompt + "".join(f" {message['content']}" for message in body.get("messages", ()))
        return 1 + self.tokens_per_word * len(text.split())

    def answer(self, body: dict[str, Any]) -> Response[Any] | Stream:
        """Answer one request."""
        self.bodies.append(body)
        number = len(self.bodies)
        if unknown := [name for name in body if name in self.refuses]:
            return Response({"detail": f"Unexpected fields in the request: {unknown}"}, status_code=422)
        if number in self.fails:
            return Response({"error": {"message": "out of paper"}}, status_code=500)
        return Stream(self.events(body, number), media_type="text/event-stream")

    async def events(self, body: dict[str, Any], number: int) -> AsyncIterator[bytes]:
        """Yield the events of one reply at their times."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        wanted = min(body["max_tokens"], self.stops_after or body["max_tokens"])
        while wanted > 1 and self.most_running < self.waits_for and loop.time() < begun + 10:
            await asyncio.sleep(0.005)
        for i in range(wanted):
            # Times are counted from the beginning, so that a late wake-up does not add up.
            await asyncio.sleep(max(0.0, begun + self.delay + i * self.gap - loop.time()))
            yield event(choices=[{"index": 0, **said(body, f" t{i}")}])
        if number in self.breaks:
            yield event(error={"message": "the paper caught fire"})
        else:
            yield event(choices=[{"index": 0, **said(body, ""), "finish_reason": "length"}])
            if self.usage:
                yield event(choices=[], usage=self.count(body, wanted))
            yield b"data: [DONE]\n\n"
        self.running -= 1

    def count(self, body: dict[str, Any], output: int) -> dict[str, Any]:
        """Return the usage of a reply."""
        details = {} if self.cached is None else {"prompt_tokens_details": {"cached_tokens": self.cached}}
        return {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": output, **details}


def said(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the text as this API's choice has it."""
    return {"delta": {"content": text}} if "messages" in body else {"text": text}


def event(**fields: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


@contextmanager
def serving(metronome: Metronome) -> Iterator[Metronome]:
    """Serve on a free port, in a thread of its own so that the client's work does not move the clock."""

    @get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "metronome", "object": "model"}]}

    @post(["/v1/completions", "/v1/chat/completions"], status_code=200)
    async def complete(data: dict[str, Any]) -> Response[Any] | Stream:
        return metronome.answer(data)

    app = Litestar([models, complete], openapi_config=None)
    server = PromptServer(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        metronome.url = f"http://127.0.0.1:{port}"
        yield metronome
    finally:
        server.should_exit = True
        thread.join()
