"""Measures live requests during a batch: what the batch costs them, and its own throughput.

    .venv/bin/python docs/benchmarks/beside_live.py --help

One `llmfw serve`, in turns: streamed chats that arrive at random times (Poisson) alone, and the same ones while a batch
of /v1/batches runs. Then lines of a batch alone, and the same requests as live ones, so many at a time as keep the
server full. Prints medians over the turns with the lowest and highest, and ratios of the figures of a pair of turns.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from servers import Server

ROOT = Path(__file__).resolve().parent.parent.parent
WORDS = [
    "the",
    "river",
    "and",
    "a",
    "house",
    "under",
    "stone",
    "light",
    "of",
    "many",
    "small",
    "birds",
    "near",
    "old",
    "towns",
    "carry",
    "news",
    "from",
    "afar",
]
ENDED = ("completed", "failed", "cancelled", "expired")


@dataclass
class Turn:
    """What live requests saw in one turn.

    Attributes:
        first: seconds from sending each request to its first text.
        gaps: seconds from one piece of text to the next, of all requests.
        lines_per_s: throughput of the batch meanwhile.
        stolen: share of the machine's CPU that its host gave to others meanwhile.
    """

    seed: int
    with_batch: bool
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    lines_per_s: float = 0.0
    stolen: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures that are compared, in milliseconds."""
        return {
            "TTFT p50": 1e3 * percentile(self.first, 50),
            "TTFT p99": 1e3 * percentile(self.first, 99),
            "ITL p50": 1e3 * percentile(self.gaps, 50),
            "ITL p99": 1e3 * percentile(self.gaps, 99),
        }


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that so many percent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def chat(rng: random.Random, tokens: int, **more: Any) -> dict[str, Any]:
    """Return a chat that is answered with so many tokens."""
    content = " ".join(rng.choices(WORDS, k=rng.randrange(5, 40)))
    body = {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": tokens}
    return body | {"ignore_eos": True, "seed": rng.randrange(2**31)} | more


async def post(port: int, body: dict[str, Any]) -> list[float]:
    """Send a chat; return when it was sent, and when each piece of its answer came."""
    payload = json.dumps(body).encode()
    times = [time.perf_counter()]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
    status = b""
    while data := await reader.read(2**16):
        status = status or data[:12]
        if b'content":"' in data.replace(b'content":""', b""):  # the reasoning's, too
            times.append(time.perf_counter())
    writer.close()
    if not status.endswith(b"200"):
        raise RuntimeError(f"a chat was answered with {status!r}")
    return times


async def live(port: int, turn: Turn, options: argparse.Namespace) -> None:
    """Send chats at random times, and take their times."""
    rng = random.Random(turn.seed)
    end = time.perf_counter() + options.seconds
    sent = []
    while (now := time.perf_counter()) < end:
        sent.append(asyncio.create_task(post(port, chat(rng, options.tokens, stream=True))))
        await asyncio.sleep(rng.expovariate(options.rate) - (time.perf_counter() - now))
    for times in await asyncio.gather(*sent):
        turn.first.append(times[1] - times[0])
        turn.gaps += [after - before for before, after in itertools.pairwise(times[1:])]


class Batches:
    """Batches of one server.

    Args:
        tokens: of each line's answer.
    """

    def __init__(self, url: str, tokens: int) -> None:
        self._http = httpx.Client(base_url=url, timeout=120)
        self._tokens = tokens

    def begin(self, seed: int, count: int) -> str:
        """Create a batch; return its id once lines of it run."""
        rng = random.Random(seed)
        lines = [
            {"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body}
            for i, body in enumerate(chat(rng, self._tokens) for _ in range(count))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        file = self._json("POST", "/v1/files", files={"file": ("in.jsonl", text)}, data={"purpose": "batch"})
        settings = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch_id: str = self._json("POST", "/v1/batches", json=settings)["id"]
        self.wait(batch_id, ("in_progress", *ENDED))
        return batch_id

    def completed(self, batch_id: str) -> int:
        """Return how many lines are done."""
        count: int = self._json("GET", f"/v1/batches/{batch_id}")["request_counts"]["completed"]
        return count

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch that has to be running still."""
        self._json("POST", f"/v1/batches/{batch_id}/cancel")
        if self.wait(batch_id, ENDED) != "cancelled":
            raise RuntimeError("the batch was over before the live requests: give it more --lines")

    def wait(self, batch_id: str, states: Iterable[str]) -> str:
        """Return the state once it is one of these."""
        while (state := self._json("GET", f"/v1/batches/{batch_id}")["status"]) not in states:
            time.sleep(0.02)
        return str(state)

    def _json(self, method: str, path: str, **more: Any) -> Any:
        return self._http.request(method, path, **more).raise_for_status().json()


def beside(server: Server, batches: Batches, seed: int, options: argparse.Namespace) -> list[Turn]:
    """Measure live requests alone and during a batch. Repeats the turn if the machine's host took CPU away meanwhile."""
    for _ in range(ATTEMPTS):
        turns = [Turn(seed, with_batch=False), Turn(seed, with_batch=True)]
        for turn in turns if seed % 2 else reversed(turns):
            before = stolen_seconds()
            take(turn, server, batches, options)
            stolen, there = (b - a for a, b in zip(before, stolen_seconds(), strict=True))
            turn.stolen = stolen / there
        if max(turn.stolen for turn in turns) <= options.stolen:
            break
        print("stolen:", [f"{turn.stolen:.1%}" for turn in turns], flush=True)
    return turns


def take(turn: Turn, server: Server, batches: Batches, options: argparse.Namespace) -> None:
    """Take one turn."""
    if not turn.with_batch:
        asyncio.run(live(server.port, turn, options))
        return
    batch_id = batches.begin(turn.seed, options.lines)
    time.sleep(1)
    before, begun = batches.completed(batch_id), time.monotonic()
    asyncio.run(live(server.port, turn, options))
    turn.lines_per_s = (batches.completed(batch_id) - before) / (time.monotonic() - begun)
    batches.cancel(batch_id)


def stolen_seconds() -> tuple[float, float]:
    """Return the CPU seconds that the host gave to others, and that there were, since the machine started (Linux)."""
    fields = [float(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[7], sum(fields)


def throughput(server: Server, batches: Batches, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Return lines per second, of a batch alone and of the same requests as live ones."""

    async def all_live() -> None:
        rng, room = random.Random(seed), asyncio.Semaphore(options.at_a_time)

        async def one(body: dict[str, Any]) -> None:
            async with room:
                await post(server.port, body)

        await asyncio.gather(*(one(chat(rng, options.tokens)) for _ in range(options.idle_lines)))

    def as_batch() -> None:
        state = batches.wait(batches.begin(seed, options.idle_lines), ENDED)
        if state != "completed":
            raise RuntimeError(f"the batch ended as {state}")

    ways = {"live": lambda: asyncio.run(all_live()), "batch": as_batch}
    rates = {}
    time.sleep(options.calm)  # live requests of the turn before are to be forgotten
    for name in ways if seed % 2 else reversed(ways):
        begun = time.monotonic()
        ways[name]()
        rates[name] = options.idle_lines / (time.monotonic() - begun)
        time.sleep(options.calm)
    return rates


def spread(values: list[float], digits: int = 2) -> str:
    """Return median, lowest and highest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_tables(turns: list[Turn], rates: list[dict[str, float]]) -> None:
    """Print what was found."""
    alone = [turn.figures() for turn in turns if not turn.with_batch]
    busy = [turn.figures() for turn in turns if turn.with_batch]
    print("| | alone, ms | during a batch, ms | ratio | of all requests |\n|---|---|---|---|---|")
    pooled = [pool(turns, with_batch=flag).figures() for flag in (False, True)]
    for name in alone[0] if alone else ():
        ratios = [b[name] / a[name] for a, b in zip(alone, busy, strict=True)]
        cells = [spread([each[name] for each in side], 1) for side in (alone, busy)]
        print(
            f"| {name} | {' | '.join(cells)} | {spread(ratios)} | {pooled[1][name] / pooled[0][name]:.2f} |"
        )
    if busy:
        print(f"lines/s during live: {spread([turn.lines_per_s for turn in turns if turn.with_batch], 1)}")
    if turns:
        print(f"CPU stolen: {spread([100 * turn.stolen for turn in turns], 1)} %")
    if rates:
        print(f"lines/s of a batch alone: {spread([rate['batch'] for rate in rates], 1)}")
        print(f"lines/s as live requests: {spread([rate['live'] for rate in rates], 1)}")
        print(f"ratio: {spread([rate['batch'] / rate['live'] for rate in rates])}")


def pool(turns: list[Turn], *, with_batch: bool) -> Turn:
    """Return one turn of all requests, alone or during a batch."""
    chosen = [turn for turn in turns if turn.with_batch == with_batch]
    first = [each for turn in chosen for each in turn.first]
    return Turn(0, with_batch, first, [each for turn in chosen for each in turn.gaps])


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="demo")
    add("--turns", type=int, default=5, help="pairs of turns, each with a seed of its own")
    add("--seconds", type=float, default=60.0, help="of live requests in a turn")
    add("--rate", type=float, default=3.0, help="live requests a second")
    add("--tokens", type=int, default=32, help="of each answer")
    add("--lines", type=int, default=5000, help="lines of the batch that runs during live requests")
    add("--idle-lines", type=int, default=1000, help="of the batch alone")
    add("--at-a-time", type=int, default=256, help="of the same requests as live ones")
    add("--calm", type=float, default=11.0, help="seconds without requests before each batch alone")
    add("--stolen", type=float, default=0.03, help="a pair is taken anew if its host took more of the CPU")
    add("--serve", action="append", default=[], metavar="FLAG=VALUE", help="a further flag of `llmfw serve`")
    add("--out", type=Path, help="results as JSON")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    command = [sys.executable, "-m", "llmfw.api", "serve", options.model, "--port", "{port}"]
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "wb") as log:
        flags = [f"--{flag}" for flag in options.serve]
        server = Server(
            "llmfw", [*command, "--storage", f"{folder}/storage", "--log-level", "warning", *flags]
        )
        server.start(ROOT, log)
        turns, rates = [], []
        try:
            batches = Batches(server.url, options.tokens)
            asyncio.run(live(server.port, Turn(0, with_batch=False), argparse.Namespace(**WARM_UP)))
            for seed in range(1, options.turns + 1):
                turns += beside(server, batches, seed, options)
                rates.append(throughput(server, batches, seed, options))
                print(f"turn {seed} of {options.turns}", *(turn.figures() for turn in turns[-2:]), rates[-1])
        finally:
            server.stop()
            print_tables(turns, rates)
            if options.out:
                found = {"options": vars(options) | {"out": None}, "turns": [asdict(t) for t in turns]}
                options.out.write_text(json.dumps(found | {"throughput": rates}) + "\n")


ATTEMPTS = 3  # at a pair of turns
WARM_UP = {"seconds": 3.0, "rate": 5.0, "tokens": 16}

if __name__ == "__main__":
    main()
