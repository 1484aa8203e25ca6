"""Compares an earlier commit with this one as clients see them: requests/s, tokens/s, first tokens, start-up.

    .venv/bin/python docs/benchmarks/before_after.py --before FOLDER/.venv/bin/llmfw

Both servers run all the time with the demo model, and take turns. A request of another schema each time has a grammar
that nobody has compiled; one of the same schema has it from the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from servers import Server

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "plugins/model_demo/weights"
CONNECTIONS = 32
CHAT = {"messages": [{"role": "user", "content": "Write a user."}], "temperature": 0, "stream": True}

Figure = Callable[[Server], Coroutine[Any, Any, float]]
_number = itertools.count()


def main() -> None:
    """Measure in turns, and print each figure's medians and the median of their ratios."""
    options = parse_arguments()
    with tempfile.TemporaryFile() as log:
        pair = [start(name, getattr(options, name), log) for name in ("before", "after")]
        try:
            results = {name: take_turns(pair, figure, options.turns) for name, figure in FIGURES.items()}
        finally:
            for server in pair:
                server.stop()
    for name, turns in results.items():
        before, after = (statistics.median(values) for values in zip(*turns, strict=True))
        ratios = sorted(b / a for a, b in turns)
        print(
            f"{name}: {before:.1f} before, {after:.1f} after, ratio {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="llmfw of the earlier commit")
    parser.add_argument("--after", type=Path, default=Path(sys.executable).parent / "llmfw")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def start(name: str, llmfw: Path, log: Any) -> Server:
    """Return a server that answers."""
    command = [str(llmfw), "serve", "{folder}", "--port", "{port}", "--log-level", "warning"]
    server = Server(name, command, model_name="{folder}")
    server.start(DEMO, log)
    return server


def take_turns(pair: list[Server], figure: Figure, turns: int) -> list[tuple[float, float]]:
    """Return what both servers did in each turn; who begins changes, and the first turn of both is not counted."""
    found = []
    for turn in range(turns + 1):
        order = pair if turn % 2 else pair[::-1]
        taken = {server.name: asyncio.run(figure(server)) for server in order}
        found.append((taken["before"], taken["after"]))
    return found[1:]


async def requests_per_second(server: Server) -> float:
    """Completions of one token, one after another on each of the connections."""
    body = {"model": server.model, "prompt": "Hi", "max_tokens": 1, "temperature": 0}
    each = 40
    begun = time.monotonic()
    await asyncio.gather(*(repeat(server, "/v1/completions", body, each) for _ in range(CONNECTIONS)))
    return CONNECTIONS * each / (time.monotonic() - begun)


async def tokens_per_second(server: Server, streams: int, tokens: int) -> float:
    """Stream a text of `tokens` tokens on each of some connections."""
    body = CHAT | {"model": server.model, "max_tokens": tokens, "ignore_eos": True}
    begun = time.monotonic()
    await asyncio.gather(*(repeat(server, "/v1/chat/completions", body, 1) for _ in range(streams)))
    return streams * tokens / (time.monotonic() - begun)


async def start_up(server: Server) -> float:
    """Start another server of the same commit; return the seconds until its first token."""
    with tempfile.TemporaryFile() as log:
        another = Server(server.name, server.command, model_name=server.model_name)
        try:
            return another.start(DEMO, log)
        finally:
            another.stop()


async def first_token_without_schema(server: Server) -> float:
    """Milliseconds."""
    return await first_token(server, dict)


async def first_token_of_new_schema(server: Server) -> float:
    """Milliseconds."""
    return await first_token(server, lambda: schema(f"name_{next(_number)}"))


async def first_token_of_cached_schema(server: Server) -> float:
    """Milliseconds."""
    await first_token(server, lambda: schema("name"), times=2)
    return await first_token(server, lambda: schema("name"))


def schema(name: str) -> dict[str, Any]:
    """Return the response format of a small object with a property of this name."""
    properties = {name: {"type": "string"}, "age": {"type": "integer"}, "admin": {"type": "boolean"}}
    made = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "user", "schema": made}}}


async def first_token(server: Server, more: Callable[[], dict[str, Any]], times: int = 30) -> float:
    """Return the median of the milliseconds from a request to the first piece of its text, one request at a time."""
    taken = []
    for _ in range(times):
        body = CHAT | {"model": server.model, "max_tokens": 2} | more()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        begun = time.perf_counter()
        send(writer, "/v1/chat/completions", body, "close")
        await reader.readuntil(b'"content":"')
        while await reader.readexactly(1) == b'"':  # the first event has the role and no text
            await reader.readuntil(b'"content":"')
        taken.append((time.perf_counter() - begun) * 1000)
        await reader.read()
        writer.close()
    return statistics.median(taken)


async def repeat(server: Server, path: str, body: dict[str, Any], times: int) -> None:
    """Send a request so often on one connection, and read each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for _ in range(times):
        send(writer, path, body, "keep-alive")
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(head.decode())
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if length:
            await reader.readexactly(int(length[0].split(b":")[1]))
        else:
            await read_chunks(reader)
    writer.close()


async def read_chunks(reader: asyncio.StreamReader) -> None:
    """Read an answer in chunks to its end."""
    last = b""
    while not last.endswith(b"\r\n0\r\n\r\n"):
        if not (data := await reader.read(2**16)):
            raise RuntimeError(f"the answer breaks off after {last!r}")
        last = (last + data)[-200:]


def send(writer: asyncio.StreamWriter, path: str, body: dict[str, Any], connection: str) -> None:
    """Write a request at the least cost."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: {connection}\r\ncontent-length: {len(data)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + data)


FIGURES: dict[str, Figure] = {
    "requests/s": requests_per_second,
    "streamed tokens/s, 32 streams": partial(tokens_per_second, streams=32, tokens=200),
    "streamed tokens/s, 16 streams": partial(tokens_per_second, streams=16, tokens=400),
    "streamed tokens/s, one stream": partial(tokens_per_second, streams=1, tokens=1000),
    "ms to the first token": first_token_without_schema,
    "ms to the first token, new schema": first_token_of_new_schema,
    "ms to the first token, cached schema": first_token_of_cached_schema,
    "s from the start to the first token": start_up,
}

if __name__ == "__main__":
    main()
