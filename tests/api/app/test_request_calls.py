"""A request and a streamed token make no more Python calls in the API than is written here.

Counts the calls in the server's threads, without those of the event loop and the echo engine. Unlike times, the numbers
depend neither on the machine nor on its load.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

import pytest

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer, serving

NUM_REQUESTS, NUM_ROUNDS = 20, 3
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 1}
REQUESTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "completion": ("/v1/completions", {"prompt": "abc", "max_tokens": 1}, 450),
    "chat": ("/v1/chat/completions", CHAT, 540),
    "stream": ("/v1/chat/completions", CHAT | {"stream": True}, 620),
}
"""Path, body, and the largest number of Python calls that a request may make."""
MOST_A_TOKEN = 31
ENGINE = ("/tests/", "/core/engine/", "/core/schedule/", "/core/client/inproc.py")
LOOP = ("/asyncio/base_events.py", "/asyncio/events.py", "/asyncio/selector_events.py", "/selectors.py")
"""Files of the event loop. `llmfw serve` runs uvloop, which makes no Python calls."""
ADVICE = "find the new calls with cProfile and take them out, or, if a feature needs them, raise the number and say why"


class Calls:
    """Counts the calls of each function in threads that start while `threading.setprofile` names this object."""

    def __init__(self) -> None:
        self.counts: Counter[CodeType] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.counts[frame.f_code] += 1

    def each(self, times: int) -> int:
        """Return the calls that each of some requests made. Rarer calls, as of timers, do not count."""
        return sum(
            count // times
            for code, count in self.counts.items()
            if not any(part in code.co_filename for part in (*ENGINE, *LOOP))
        )


class Counted:
    """A connection to a server, and the calls that the server makes."""

    def __init__(self, sock: socket.socket, calls: Calls) -> None:
        self._sock = sock
        self._calls = calls

    def calls_of(self, path: str, body: dict[str, Any]) -> int:
        """Return the number of Python calls of a request: the least of several rounds, without a busy machine's timers."""
        self._send(path, body)  # makes what stays
        return min(self._round(path, body) for _ in range(NUM_ROUNDS))

    def _round(self, path: str, body: dict[str, Any]) -> int:
        self._calls.counts.clear()
        for _ in range(NUM_REQUESTS):
            self._send(path, body)
        return self._calls.each(NUM_REQUESTS)

    def _send(self, path: str, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self._sock.sendall(head.encode() + data)  # at once: a body that comes later costs a few calls more
        response = http.client.HTTPResponse(self._sock)
        response.begin()
        assert response.status == 200, response.read()
        response.read()


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    folder: Path = tmp_path_factory.mktemp("model")
    calls = Calls()
    threading.setprofile(calls)
    try:
        with (
            serving(EchoEngine(), byte_tokenizer(folder)) as server,
            socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 80)) as sock,
        ):
            yield Counted(sock, calls)
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_makes_few_calls(kind: str, counted: Counted) -> None:
    path, body, most = REQUESTS[kind]
    found = counted.calls_of(path, body)
    assert found <= most, f"a request ({kind}) makes {found} Python calls, not {most}: {ADVICE}"


def test_a_streamed_token_makes_few_calls(counted: Counted) -> None:
    def calls_of(num_tokens: int) -> int:
        messages = [{"role": "user", "content": "a" * num_tokens}]
        body = {"messages": messages, "max_tokens": num_tokens, "stream": True}
        return counted.calls_of("/v1/chat/completions", body)

    found = (calls_of(150) - calls_of(50)) / 100
    assert found <= MOST_A_TOKEN, f"a token makes {found} Python calls, not {MOST_A_TOKEN}: {ADVICE}"
