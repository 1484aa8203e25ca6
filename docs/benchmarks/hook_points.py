"""Counts what the hooks that see or wrap requests cost a server, in calls of functions and in messages to its engine.

    .venv/bin/python docs/benchmarks/hook_points.py --out docs/benchmarks/hook_points.json

Time tells little about so few calls, and the commit before these hooks differs from this one in much else. So this serves the
same streams without plugins, and with five observers and two middleware, and counts

- the calls of functions in the files that these hooks have brought, by the request and by the token;
- the bytes that go to the engine and come from it, whose code knows nothing of observers, middleware and authenticators.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop
from machine import describe_machine
from plugin_variants import NAMES, NONE, Variant, serving_all
from streaming_cost import DEMO
from turn_reader import StreamReader

FILES = (
    "api/access/authenticators.py",
    "api/access/principals.py",
    "api/app/plugin_middleware.py",
    "api/services/middleware.py",
    "api/services/observing.py",
    "core/client/observed.py",
    "core/client/observers.py",
    "core/plugin/containment.py",
    "core/plugin/guard.py",
    "core/plugin/reply_rules.py",
)
"""The files that the hooks `observers`, `middleware` and `authenticators` have brought to the way of a request."""
BOTH = NAMES[-1]
SHORT, LONG = 4, 54
"""Tokens of a reply. The difference tells what a token costs."""
PAUSE_S = 0.002


class Calls:
    """Counts calls of functions by their file, in this thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._known: dict[str, str | None] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count until the block ends."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        path = frame.f_code.co_filename
        if path not in self._known:
            self._known[path] = next((each for each in FILES if path.endswith(each)), None)
        if (name := self._known[path]) is not None:
            self.counts[name] += 1


def main() -> None:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(counted(Path(folder), options.streams))
    if options.out:
        options.out.write_text(json.dumps({"machine": describe_machine(), **found}, indent=1) + "\n")
    print(table(found))


async def counted(folder: Path, streams: int) -> dict[str, Any]:
    """Return the calls and the bytes of each server.

    Returns:
        By the server's name: `calls_a_request` and `calls_a_token` by file, `bytes_to_engine` and `bytes_from_engine`
        of a reply with LONG tokens.
    """
    found: dict[str, Any] = {}
    async with serving_all(DEMO, folder) as variants, StreamReader.started() as reader:
        for name in (NONE, BOTH):
            [variant] = (each for each in variants if each.name == name)
            await replies(variant, reader, streams, SHORT)  # warms up
            short, _, _ = await replies(variant, reader, streams, SHORT)
            long, sent, received = await replies(variant, reader, streams, LONG)
            per_token = {name: (long[name] - short[name]) / streams / (LONG - SHORT) for name in long}
            found[name] = {
                "calls_a_request": {name: short[name] / streams for name in sorted(short)},
                "calls_a_token": {name: count for name, count in sorted(per_token.items()) if count > 0.01},
                "bytes_to_engine": sent / streams,
                "bytes_from_engine": received / streams,
            }
    return found


async def replies(
    variant: Variant, reader: StreamReader, streams: int, tokens: int
) -> tuple[Counter[str], int, int]:
    """Return the calls, the bytes to the engine and the bytes from it, of some streams from beginning to end."""
    random.seed(0)
    calls, sent, received = Calls(), variant.client.num_sent_bytes, 0
    with calls.counting():
        await reader.ask(variant.port, streams, tokens)
        while variant.client.num_running < streams:
            await asyncio.sleep(PAUSE_S)
        for _ in range(tokens):
            [message] = variant.client.encoded_steps(1)
            received += len(message)
            variant.client.deliver(message)
            await asyncio.sleep(PAUSE_S)
        await reader.wait_until_read()
    return calls.counts, variant.client.num_sent_bytes - sent, received


def table(found: dict[str, Any]) -> str:
    """Return the counts as Markdown."""
    lines = [
        "| server | calls a request | calls a token | bytes to the engine a request | bytes from it |",
        "|---|---|---|---|---|",
    ]
    for name, each in found.items():
        calls = [sum(each[what].values()) for what in ("calls_a_request", "calls_a_token")]
        lines.append(
            f"| {name} | {calls[0]:.1f} | {calls[1]:.2f} | {each['bytes_to_engine']:.1f} | {each['bytes_from_engine']:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
