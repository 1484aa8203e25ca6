"""Bodies that nobody should send are answered with 4xx envelopes, and leave nothing behind in the server's memory."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ..doubles import serve_echo
from ..doubles.serving import byte_tokenizer
from .test_errors import error_of

NUM_BODIES = 10_000
NUM_LARGE = 8  # 10 MB each
MEMORY_MB = 64  # that the server may keep: allocators do not give all back

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": MESSAGES,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 3,
    "n": 2,
    "seed": 7,
    "stop": ["x"],
    "logit_bias": {"5": 1},
    "stream": False,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "chat_template_kwargs": {"a": 1},
    "metadata": {"k": "v"},
}
COMPLETION: dict[str, Any] = {
    "model": "tiny",
    "prompt": "Hi",
    "max_tokens": 3,
    "echo": True,
    "n": 1,
    "stop": "x",
    "logit_bias": {"5": 1},
    "stream_options": None,
}
BODIES = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}
WRONG: list[Any] = [
    None,
    True,
    "",
    "\x00",
    "text" * 500,
    -1,
    0,
    2**31,
    -(2**63) - 1,
    10**400,
    1e308,
    -0.0,
    math.nan,
    math.inf,
    [],
    {},
    [[]],
    {"": None},
    ["a", 1, None],
    {"role": "user"},
    "\ud800",
    "\U0001f600" * 100,
    {"$ref": "#"},
]


class Server:
    """`llmfw serve` around the echo engine, as a process of its own, so that its memory can be seen."""

    def __init__(self, folder: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, serve_echo.__file__, folder], stderr=subprocess.PIPE, stdout=None, text=True
        )
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                self.url = found[1]
                break
        self._reader = threading.Thread(target=self.popen.stderr.readlines)
        self._reader.start()

    def close(self) -> None:
        self.popen.terminate()
        self.popen.wait(20)
        self._reader.join()
        assert self.popen.stderr is not None
        self.popen.stderr.close()

    def megabytes(self) -> float:
        with open(f"/proc/{self.popen.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@pytest.fixture
def process(tmp_path) -> Iterator[Server]:
    byte_tokenizer(tmp_path)
    server = Server(str(tmp_path))
    yield server
    server.close()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a body."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a body with another value at a path."""
    if not path:
        return value
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def encoded(body: Any) -> bytes:
    """Return JSON as a careless client writes it: NaN, huge integers and lone surrogates are let through."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def flipped(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]


def nested(raw: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((50, 1000, 20_000))
    return raw[:-1] + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"


def doubled(raw: bytes, rng: random.Random) -> bytes:
    return raw[:-1] + b"," + raw[1:]


BYTES: list[Callable[[bytes, random.Random], bytes]] = [cut, flipped, nested, doubled]


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """Return a path, and a body for it that is wrong in one to three ways (or, now and then, is not)."""
    path, body = rng.choice(list(BODIES.items()))
    for _ in range(rng.randint(1, 3)):
        body = changed(body, rng.choice(list(places(body))), rng.choice(WRONG))
    raw = encoded(body)
    return path, rng.choice(BYTES)(raw, rng) if rng.random() < 0.3 else raw


def answered(reply: httpx.Response) -> bool:
    """Return whether a reply was an error, after checking its form."""
    if reply.status_code == 200:
        return False
    assert 400 <= reply.status_code < 500, (reply.status_code, reply.text, reply.request.content[:500])
    error_of(reply, reply.status_code)
    return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory's size from /proc")
def test_hostile_bodies_are_refused_and_leave_no_memory_behind(process):
    rng = random.Random(0)
    with httpx.Client(base_url=process.url, timeout=60, headers={"content-type": "application/json"}) as http:
        for _ in range(NUM_BODIES // 10):
            answered(http.post(mutated(rng)[0], content=mutated(rng)[1]))
        _send_large(http, rng, num=2)
        before = process.megabytes()
        refused = [answered(http.post(path, content=raw)) for path, raw in map(mutated, [rng] * NUM_BODIES)]
        _send_large(http, rng, num=NUM_LARGE)
        assert http.get("/health").json() == {"status": "ok"}
    assert sum(refused) > NUM_BODIES / 2
    assert process.megabytes() < before + MEMORY_MB


def _send_large(http: httpx.Client, rng: random.Random, num: int) -> None:
    """Send strings of 10 MB at any place of a body; they do not fit the context."""
    for _ in range(num):
        path, body = rng.choice(list(BODIES.items()))
        place = rng.choice([p for p in places(body) if p and isinstance(p[-1], str)])
        answered(http.post(path, content=encoded(changed(body, place, "ab" * 5_000_000))))
