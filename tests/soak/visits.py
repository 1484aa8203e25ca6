"""What a client of each kind asks of a server. Each visit draws its content from a generator of its own."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

WORDS = [
    "capital",
    "France",
    "Germany",
    "Japan",
    "river",
    "ocean",
    "planet",
    "moon",
    "What",
    "is",
    "the",
    "of",
    "a",
    "in",
    "and",
    "city",
    "name",
    "color",
    "largest",
]
CHATS = "/v1/chat/completions"
NUM_BATCH_LINES = 12
BATCH_TIMEOUT_S = 900.0


class WrongReplyError(Exception):
    """A reply that the client of a sound server does not get."""


class Visit:
    """One client's visit.

    Args:
        headers: with the client's key.
        draw: what is random in the visit.

    Attributes:
        first_at: when the first token came, on the clock of `time.monotonic`; None without one.
    """

    def __init__(self, http: httpx.AsyncClient, headers: dict[str, str], draw: random.Random) -> None:
        self.first_at: float | None = None
        self.draw = draw
        self._http, self._headers = http, headers

    async def ask(self, method: str, path: str, expected: int = 200, **content: Any) -> httpx.Response:
        """Send a request and return its reply.

        Raises:
            WrongReplyError: the reply has another status than expected.
        """
        reply = await self._http.request(method, path, headers=self._headers, **content)
        if reply.status_code != expected:
            raise WrongReplyError(f"{path}: {reply.status_code} {reply.text[:200]}")
        return reply

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a body and return the decoded reply."""
        return (await self.ask("POST", path, json=body)).json()

    async def read(self, path: str, body: dict[str, Any], most_events: int | None = None) -> None:
        """Read a stream to its end, or leave after some events.

        Raises:
            WrongReplyError: the stream is refused, has an error, or ends without having come to its end.
        """
        num_events, is_whole = 0, False
        asked = {**body, "stream": True}
        async with self._http.stream("POST", path, headers=self._headers, json=asked) as reply:
            if reply.status_code != 200:
                raise WrongReplyError(f"{path}: {reply.status_code} {(await reply.aread())[:200]!r}")
            async for line in reply.aiter_lines():
                if line.startswith("data: "):
                    if num_events == most_events:
                        return
                    if line.startswith('data: {"error"'):
                        raise WrongReplyError(f"{path}: {line[:200]}")
                    self.first_at = self.first_at or time.monotonic()
                    num_events += 1
                    is_whole = line == "data: [DONE]"
        if not is_whole:
            raise WrongReplyError(f"{path}: cut after {num_events} events")

    def text(self, few: int, many: int) -> str:
        """Return some of few words: the beginnings of many texts are equal, as those of system prompts are."""
        return " ".join(self.draw.choices(WORDS, k=self.draw.randint(few, many)))

    def chat(self, max_tokens: int) -> dict[str, Any]:
        """Return the body of a chat of one to five messages that gets up to so many tokens."""
        messages = [{"role": "system", "content": "Answer in one sentence."}]
        for _ in range(self.draw.randrange(3)):
            messages += [
                {"role": "user", "content": self.text(2, 20)},
                {"role": "assistant", "content": "Yes."},
            ]
        messages.append({"role": "user", "content": self.text(3, 40)})
        return {
            "messages": messages,
            "max_tokens": self.draw.randint(1, max_tokens),
            "seed": self.draw.randrange(99),
        }


async def chat(visit: Visit) -> None:
    await visit.post(CHATS, visit.chat(24) | {"temperature": visit.draw.choice([0.0, 0.7, 1.0])})


async def choices(visit: Visit) -> None:
    body = {"prompt": visit.text(2, 20), "max_tokens": 8, "n": 3, "temperature": 1.0, "logprobs": 3}
    await visit.post("/v1/completions", body)


async def stream(visit: Visit) -> None:
    await visit.read(CHATS, visit.chat(32) | {"stream_options": {"include_usage": True}})


async def vanish(visit: Visit) -> None:
    """Leave a stream after some events, or a reply before it comes."""
    body = visit.chat(64) | {"ignore_eos": True, "max_tokens": 64}
    if visit.draw.random() < 0.7:
        await visit.read(CHATS, body, visit.draw.randrange(20))
    else:
        try:
            async with asyncio.timeout(visit.draw.random() * 0.1):
                await visit.post(CHATS, body)
        except TimeoutError:
            pass


async def grammar(visit: Visit) -> None:
    """Half of the schemas are new to the server, so that what it keeps of them must have a limit."""
    name = "age" if visit.draw.random() < 0.5 else f"field_{visit.draw.randrange(10**6)}"
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": [name],
        "additionalProperties": False,
    }
    asked = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}
    reply = await visit.post(CHATS, visit.chat(8) | {"response_format": asked, "max_tokens": 96})
    choice = reply["choices"][0]
    if choice["finish_reason"] == "stop" and name not in json.loads(choice["message"]["content"]):
        raise WrongReplyError(f"{CHATS}: {choice} lacks {name}")


async def tools(visit: Visit) -> None:
    city = {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$"}
    parameters = {
        "type": "object",
        "properties": {"city": city},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    body = visit.chat(8) | {"tools": [tool], "tool_choice": "required", "max_tokens": 64}
    if visit.draw.random() < 0.5:
        await visit.read(CHATS, body)
    else:
        await visit.post(CHATS, body)


async def responses(visit: Visit) -> None:
    """A stored reply, one that continues it, and half of the time the end of both."""
    body = {"input": visit.text(2, 12), "max_output_tokens": 8}
    first = await visit.post("/v1/responses", body)
    second = await visit.post("/v1/responses", body | {"previous_response_id": first["id"]})
    await visit.ask("GET", f"/v1/responses/{second['id']}")
    if visit.draw.random() < 0.5:
        for reply in (second, first):
            await visit.ask("DELETE", f"/v1/responses/{reply['id']}")


async def rerank(visit: Visit) -> None:
    documents = [visit.text(3, 20) for _ in range(3)]
    await visit.post("/v1/rerank", {"query": visit.text(1, 5), "documents": documents})


async def files(visit: Visit) -> None:
    """Up, down and away; a third of the files comes in parts."""
    content = visit.draw.randbytes(visit.draw.randint(1, 200_000))
    if visit.draw.random() < 0.67:
        form = {"purpose": (None, "user_data"), "file": ("a.bin", content)}
        file = (await visit.ask("POST", "/v1/files", files=form)).json()
    else:
        announced = {"filename": "a.bin", "purpose": "user_data", "bytes": len(content), "mime_type": "a/b"}
        upload = await visit.post("/v1/uploads", announced)
        parts = [
            (await visit.ask("POST", f"/v1/uploads/{upload['id']}/parts", files={"data": half})).json()["id"]
            for half in (content[: len(content) // 2], content[len(content) // 2 :])
            if half
        ]
        file = (await visit.post(f"/v1/uploads/{upload['id']}/complete", {"part_ids": parts}))["file"]
    if (await visit.ask("GET", f"/v1/files/{file['id']}/content")).content != content:
        raise WrongReplyError(f"file {file['id']} is not what was uploaded")
    await visit.ask("DELETE", f"/v1/files/{file['id']}")


async def batch(visit: Visit) -> None:
    """A batch, its output, and the end of its files."""
    ids = [str(number) for number in range(NUM_BATCH_LINES)]
    body = [{"custom_id": id, "method": "POST", "url": CHATS, "body": visit.chat(12)} for id in ids]
    content = "".join(json.dumps(line) + "\n" for line in body).encode()
    form = {"purpose": (None, "batch"), "file": ("in.jsonl", content)}
    file = (await visit.ask("POST", "/v1/files", files=form)).json()
    asked = {"input_file_id": file["id"], "endpoint": CHATS, "completion_window": "24h"}
    job = await visit.post("/v1/batches", asked)
    async with asyncio.timeout(BATCH_TIMEOUT_S):
        while job["status"] in ("validating", "in_progress", "finalizing"):
            await asyncio.sleep(2)
            job = (await visit.ask("GET", f"/v1/batches/{job['id']}")).json()
    if job["status"] != "completed":
        raise WrongReplyError(f"batch {job['id']} is {job['status']}")
    output = (await visit.ask("GET", f"/v1/files/{job['output_file_id']}/content")).content
    if sorted(json.loads(line)["custom_id"] for line in output.splitlines()) != sorted(ids):
        raise WrongReplyError(f"batch {job['id']}: the output has other lines than the input")
    for id in (file["id"], job["output_file_id"]):
        await visit.ask("DELETE", f"/v1/files/{id}")


async def look(visit: Visit) -> None:
    await visit.ask("GET", "/v1/models")
    await visit.post("/tokenize", {"prompt": visit.text(5, 100)})
    await visit.ask("GET", "/v1/batches", params={"limit": 5})


async def err(visit: Visit) -> None:
    """What a server refuses must not stay in it."""
    nonsense: Sequence[Callable[[], Awaitable[Any]]] = (
        lambda: visit.ask("POST", CHATS, 400, content=b'{"messages": [' + visit.draw.randbytes(50)),
        lambda: visit.ask("POST", CHATS, 400, json={"messages": "Hello", "max_tokens": visit.draw.random()}),
        lambda: visit.ask("GET", f"/v1/files/file-{visit.draw.randrange(10**9)}", 404),
        lambda: visit.ask("GET", f"/unknown/{visit.draw.randrange(10**9)}", 404),
    )
    await visit.draw.choice(nonsense)()


KINDS: dict[str, tuple[int, Callable[[Visit], Awaitable[None]]]] = {
    "chat": (20, chat),
    "choices": (5, choices),
    "stream": (25, stream),
    "vanish": (12, vanish),
    "grammar": (7, grammar),
    "tools": (7, tools),
    "responses": (5, responses),
    "rerank": (3, rerank),
    "files": (6, files),
    "batch": (1, batch),
    "look": (5, look),
    "err": (4, err),
}
"""name → shares of the visits, what the client does."""
