"""Does the simulator tell the truth? The same requests through a real server and through `llmfw simulate`.

    .venv/bin/python docs/benchmarks/truth.py --help

For each policy and load: starts `llmfw serve demo` with `--record-requests`, sends requests that arrive at random times
whether others have been answered or not (Poisson), and replays what was recorded. Prints predicted and real throughput
and time to first token, and their ratios. The demo model is measured (`--fit`) before and after each load, and a
prediction is the mean of what the two profiles say: a shared machine is not as fast in one minute as in the next. Of
the time that the host gave to others (steal) the guest knows how much it was: a profile is brought to the steal of the
run that it is to predict. Each pair is run several times, and its figures are those of the run in the middle, of each
figure on its own; the ratios of all runs are told.

Engine and profile have one thread, so that the API and the client have the other core of a small machine: what they
take from the engine's cores is not simulated. What HTTP and the tokenizer add to a request is measured before, by
requests on the idle server, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from servers import Server
from tables import write_between

from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.bench.client import CompletionClient
from llmfw.plugins.bench.reply import Reply
from llmfw.plugins.simulator.figures import figures_of
from llmfw.plugins.simulator.policies import policy_maker
from llmfw.plugins.simulator.profile import Profile, load_profile
from llmfw.plugins.simulator.replay import replay
from llmfw.plugins.simulator.replica import EngineSettings
from llmfw.plugins.simulator.trace import TraceRequest, read_trace

ENGINE = EngineSettings(kv_tokens=8192, page_size=16, max_running=16, chunk=512)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
FAMILIES = 12
IDS = range(300, 4000)  # ordinary tokens of the demo model
LOADS = {"half full": 0.5, "overloaded": 3.0}
"""Arrivals a second, as a share of what the server does in a second when all come at once."""
FIT_ROUNDS = "1"


@dataclass
class Run:
    """What was predicted and what was real, of one run.

    Attributes:
        output_tok_s, ttft_p50_ms: predicted and real.
        steal: share of the machine's time that others took while it was real.
    """

    output_tok_s: tuple[float, float]
    ttft_p50_ms: tuple[float, float]
    steal: float


@dataclass
class Pair:
    """The runs of one policy and load.

    Attributes:
        rate: arrivals a second.
    """

    policy: str
    load: str
    rate: float
    runs: list[Run]

    def ratios(self) -> tuple[list[float], list[float]]:
        """Return predicted / real of each run, in ascending order: of throughput, and of time to first token."""
        return (
            sorted(run.output_tok_s[0] / run.output_tok_s[1] for run in self.runs),
            sorted(run.ttft_p50_ms[0] / run.ttft_p50_ms[1] for run in self.runs),
        )

    def off(self) -> float:
        """Return by which share the worse of the two figures is off, in the run in the middle."""
        return max(abs(statistics.median(ratios) - 1) for ratios in self.ratios())


@dataclass
class Prompt:
    """One request that is sent."""

    ids: list[int]
    output: int
    priority: int


def main() -> None:
    """Measure the model, then each policy under each load; exit with 1 if a prediction is too far off."""
    options = parse_arguments()
    os.environ.update(ENVIRONMENT)
    before = kept(options.out, options.policies) if options.out else []  # what cannot be read is told at once
    with tempfile.TemporaryDirectory() as name:
        fits = Fits(Path(name))
        pairs = [pair for policy in options.policies for pair in measure(policy, fits, Path(name), options)]
    if options.out:
        pairs = [*before, *pairs]
        options.out.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    worst = max(pair.off() for pair in pairs)
    text = f"{table(pairs)}\n\nFarthest off: {worst:.0%}."
    print(text)
    if options.page:
        write_between(options.page, "truth", text)
    sys.exit(worst > options.within)


def kept(path: Path, policies: list[str]) -> list[Pair]:
    """Return the pairs that a file has of policies other than these."""
    pairs = msgspec.json.decode(path.read_bytes(), type=list[Pair]) if path.exists() else []
    return [pair for pair in pairs if pair.policy not in policies]


def table(pairs: list[Pair]) -> str:
    """Return the pairs as Markdown."""
    lines = [
        "| policy | load | real output tok/s | predicted / real | real TTFT p50, ms | predicted / real | steal |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair in pairs:
        real_rate = statistics.median(run.output_tok_s[1] for run in pair.runs)
        real_wait = statistics.median(run.ttft_p50_ms[1] for run in pair.runs)
        rates, waits = pair.ratios()
        lines.append(
            f"| {pair.policy} | {pair.load}, {pair.rate:.1f} requests/s | {real_rate:.1f} | {with_spread(rates)} | "
            f"{real_wait:.1f} | {with_spread(waits)} | {max(run.steal for run in pair.runs):.1%} |"
        )
    return "\n".join(lines)


def with_spread(ratios: list[float]) -> str:
    """Return the median, and from where to where they go."""
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", nargs="+", default=["fcfs", "lpm", "priority"])
    parser.add_argument("--requests", type=int, default=240, help="of each load")
    parser.add_argument("--runs", type=int, default=5, help="of each policy and load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=0.15)
    parser.add_argument("--out", type=Path, help="results; what it has of other policies stays")
    parser.add_argument("--page", type=Path, help="page between whose markers the table is written")
    return parser.parse_args()


class Fits:
    """Profiles of the demo model on one thread, one after the other, as they would be if nobody else had the machine.

    Args:
        folder: for files.

    Attributes:
        last: the newest.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "profile.json"
        self.last = self.new()

    def new(self) -> Profile:
        """Measure one more."""
        command = [sys.executable, "-m", "llmfw.api", "simulate", "--fit", "demo", "--fit-rounds", FIT_ROUNDS]
        begun = cpu_ticks()
        subprocess.run([*command, "--save", str(self._path)], check=True)
        self.last = slowed(load_profile(self._path), 1 - stolen_since(begun))
        return self.last


def slowed(profile: Profile, factor: float) -> Profile:
    """Return a profile of which each step takes so many times as long."""
    return msgspec.structs.replace(
        profile,
        host=factor * profile.host,
        points=[(tokens, factor * seconds) for tokens, seconds in profile.points],
        per_sequence=factor * profile.per_sequence,
        per_context=factor * profile.per_context,
        per_pair=factor * profile.per_pair,
    )


def prompts(seed: int, count: int) -> list[Prompt]:
    """Return requests of a few families; what a family shares, and the whole prompts, are whole blocks of a recording."""
    rng = random.Random(seed)
    families = [rng.choices(IDS, k=16 * rng.randrange(8, 17)) for _ in range(FAMILIES)]
    return [
        Prompt(
            ids=rng.choice(families) + rng.choices(IDS, k=16 * rng.randrange(2, 9)),
            output=rng.randrange(16, 65),
            priority=rng.randrange(3),
        )
        for _ in range(count)
    ]


def measure(policy: str, fits: Fits, folder: Path, options: argparse.Namespace) -> list[Pair]:
    """Return what was predicted and what was real, under each load. Each has a server of its own."""
    drawn = prompts(options.seed, options.requests)
    added, capacity = calibrated(policy, fits, folder, drawn)
    pairs = []
    for load, share in LOADS.items():
        pair = Pair(policy, load, share * capacity, [])
        for number in range(options.runs):
            record = folder / f"{policy}-{share}-{number}.jsonl"
            pair.runs.append(measured(policy, drawn, pair.rate, options.seed + number, record, added, fits))
            print(policy, load, pair.runs[-1], file=sys.stderr, flush=True)
        pairs.append(pair)
    return pairs


def measured(
    policy: str, drawn: list[Prompt], rate: float, seed: int, record: Path, added: float, fits: Fits
) -> Run:
    """Run one load on a server of its own, and replay it with the profiles of before and after.

    Args:
        rate: arrivals a second.
        record: where the server records the requests.
        added: seconds that HTTP adds to a request.
    """
    before = fits.last
    with serving(policy, record) as server:
        begun = cpu_ticks()
        replies = asyncio.run(server.send(drawn, rate, seed))
        steal = stolen_since(begun)
        recorded = server.recorded(len(drawn))
    profiles = [
        msgspec.structs.replace(slowed(each, 1 / (1 - steal)), per_request=added)
        for each in (before, fits.new())
    ]
    predicted = [simulated(policy, each, recorded) for each in profiles]
    wall = max(reply.ended for reply in replies) - min(reply.started for reply in replies)
    output = sum(reply.output_tokens or 0 for reply in replies)
    first = statistics.median(reply.times[0] - reply.started for reply in replies)
    return Run(
        output_tok_s=(statistics.fmean(each["output_tok_s"] for each in predicted), output / wall),
        ttft_p50_ms=(statistics.fmean(each["ttft_p50_ms"] for each in predicted), 1e3 * first),
        steal=steal,
    )


def cpu_ticks() -> list[int]:
    """Return what /proc/stat has counted for all cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def stolen_since(begun: list[int]) -> float:
    """Return the share of the cores' time that the host gave to others."""
    spent = [now - before for now, before in zip(cpu_ticks(), begun, strict=True)]
    return spent[7] / sum(spent)


def calibrated(policy: str, fits: Fits, folder: Path, drawn: list[Prompt]) -> tuple[float, float]:
    """Return the seconds that HTTP adds to a request, and the requests that a full server answers in a second."""
    with serving(policy, folder / f"{policy}-idle.jsonl") as server:
        alone = drawn[:40]
        replies = asyncio.run(server.send_one_by_one(alone))
        recorded = server.recorded(len(alone))
    real = statistics.median(1e3 * (reply.times[0] - reply.started) for reply in replies)
    alone_ms = [simulated(policy, each, recorded)["ttft_p50_ms"] for each in (fits.last, fits.new())]
    added = max(0.0, real - statistics.fmean(alone_ms)) / 1e3
    print(f"{policy}: HTTP adds {1e3 * added:.1f} ms to a request", file=sys.stderr, flush=True)
    with serving(policy, folder / f"{policy}-full.jsonl") as server:
        replies = asyncio.run(server.send(drawn, 1e6, 0))
    return added, len(drawn) / (max(reply.ended for reply in replies) - replies[0].started)


def simulated(policy: str, profile: Profile, trace: list[TraceRequest]) -> dict[str, Any]:
    """Return the figures of a replay."""
    made = policy_maker(policy, {}, load_plugins().registry)()
    ledger = replay(trace, ENGINE, profile, [made])
    return figures_of(ledger, trace, profile, ENGINE.chunk)


class Served:
    """A server of the demo model that records its requests."""

    def __init__(self, server: Server, record: Path) -> None:
        self._server = server
        self._record = record
        self._before = len(record.read_text().splitlines())  # requests that asked whether it was ready

    async def send(self, drawn: list[Prompt], rate: float, seed: int) -> list[Reply]:
        """Send requests at random times, so many a second on average."""
        client, rng = self._client(), random.Random(seed)
        tasks, due = [], time.perf_counter()
        for prompt in drawn:
            await asyncio.sleep(due - time.perf_counter())
            tasks.append(asyncio.create_task(self._ask(client, prompt)))
            due += rng.expovariate(rate)
        return await asyncio.gather(*tasks)

    async def send_one_by_one(self, drawn: list[Prompt]) -> list[Reply]:
        """Send each when the one before it has ended."""
        client = self._client()
        return [await self._ask(client, prompt) for prompt in drawn]

    def recorded(self, count: int) -> list[TraceRequest]:
        """Return the last requests of the recording."""
        lines = self._record.read_bytes().splitlines(keepends=True)[self._before :]
        assert len(lines) == count, (len(lines), count)
        own = self._record.with_suffix(".own")
        own.write_bytes(b"".join(lines))
        return read_trace(own)

    def _client(self) -> CompletionClient:
        return CompletionClient(self._server.url, model="demo")

    @staticmethod
    async def _ask(client: CompletionClient, prompt: Prompt) -> Reply:
        reply = await client.complete({"prompt": prompt.ids, "priority": prompt.priority}, prompt.output)
        assert reply.error is None, reply.error
        return reply


@contextmanager
def serving(policy: str, record: Path) -> Iterator[Served]:
    """Run `llmfw serve demo` with a policy until the block ends."""
    command = [sys.executable, "-m", "llmfw.api", "serve", "demo", "--port", "{port}", "--policy", policy]
    command += ["--max-total-tokens", str(ENGINE.kv_tokens), "--page-size", str(ENGINE.page_size)]
    command += ["--max-running-requests", str(ENGINE.max_running)]
    command += ["--chunked-prefill-size", str(ENGINE.chunk), "--record-requests", str(record)]
    server = Server("llmfw", command)
    with record.with_suffix(".log").open("wb") as log:
        try:
            server.start(Path("demo"), log)
            yield Served(server, record)
        except RuntimeError:
            print(record.with_suffix(".log").read_text(), file=sys.stderr)
            raise
        finally:
            server.stop()


if __name__ == "__main__":
    main()
