"""A second client in a process of its own: one small chat each 50 ms, whatever became of those before.

Prints one JSON line at its end (SIGTERM, or the end of its input): the milliseconds of each request, and the failures.
A process of its own, since an attacker in the same one would slow it down by Python's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

PERIOD_S = 0.05
TIMEOUT_S = 30.0


class Connections:
    """Keeps connections open between requests, as SDKs do; opens one when all are in use."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body. Like an SDK, try again if an idle connection was closed."""
        if self._idle:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                return await self._ask(request)
            self._idle.clear()
        return await self._ask(request)

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = (
            self._idle.pop()
            if self._idle
            else await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        )
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        except BaseException:
            writer.close()
            raise
        if fields.get(b"connection") == b"close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return int(head.split(b" ", 2)[1]), body


class Probe:
    """Sends requests, and notes how each ended.

    Args:
        request: what is sent, head and body.
    """

    def __init__(self, port: int, request: bytes) -> None:
        self._connections = Connections(port)
        self._request = request
        self.latencies_ms: list[float] = []
        self.failures: list[str] = []

    async def ask(self) -> None:
        """Send one request."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, body = await self._connections.ask(self._request)
            if status != 200:
                self.failures.append(f"{status}: {body[:200].decode('utf-8', 'replace')}")
        except (OSError, EOFError, TimeoutError) as error:
            self.failures.append(repr(error))
        self.latencies_ms.append((time.perf_counter() - started) * 1000)

    async def run(self, stop: asyncio.Event) -> None:
        """Send a request each period until told to stop, then wait for those on their way."""
        async with asyncio.TaskGroup() as tasks:
            due = asyncio.get_running_loop().time()
            while not stop.is_set():
                tasks.create_task(self.ask())
                due += PERIOD_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, due - asyncio.get_running_loop().time()))


def chat_request(port: int, key: str) -> bytes:
    """Return a chat of few tokens as bytes."""
    messages = [{"role": "user", "content": "Say this is a test"}]
    body = json.dumps({"model": "demo", "messages": messages, "max_tokens": 2, "temperature": 0}).encode()
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def main() -> None:
    """Run until standard input ends. Arguments: port, API key or an empty text."""
    port, key = int(sys.argv[1]), sys.argv[2]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    probe = Probe(port, chat_request(port, key))
    running = loop.create_task(probe.run(stop))
    await reader.read()
    stop.set()
    await running
    print(json.dumps({"latencies_ms": probe.latencies_ms, "failures": probe.failures}))


if __name__ == "__main__":
    asyncio.run(main())
