"""What observers and middleware cost the API process: 200 streams of chat from an engine that does nothing.

    .venv/bin/python docs/benchmarks/plugin_cost.py --out docs/benchmarks/plugin_cost.json

A process has five servers: two without plugins, whose difference is the error of the measurement; one with five observers (the
request log, and four that count); one with two middleware (cors and gzip); and one with both. They take turns of a step, in
random order. Counted is the CPU time of the whole process while a server's 200 streams get one token each. A comparison is of
steps within a tenth of a second, so that neither other processes nor the speed of the machine matter much. After the tokens,
turns of whole requests with few tokens tell what a request costs. A process of its own reads the streams. All this is repeated
in several processes, because where objects lie in memory makes equal servers differ by a percent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from machine import describe_machine
from plugin_variants import AGAIN, NAMES, NONE, Variant, serving_all
from streaming_cost import DEMO
from turn_reader import StreamReader

from llmfw.core.imports import garbage

Costs = dict[str, list[float]]
"""Microseconds of a token or a request in each turn, by the server's name."""
Found = dict[str, Costs]
"""Costs of tokens, as `us_per_token`, and of requests, as `us_per_request`."""

SHORT = 4
"""Tokens of the requests whose whole cost is counted."""
PAUSE_S = 0.002
FLUSH_S = 0.15
"""Seconds until observers have got the events, which the server collects for 0.1 s."""


def main() -> None:
    """Measure in several processes, and print the ratios to the server without plugins."""
    options = parse_arguments()
    if options.alone:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(uvloop.run(measured(Path(folder), options))))
        return
    processes: list[Found] = []
    for number in range(options.processes):
        command = [sys.executable, __file__, "--alone", *sys.argv[1:]]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        processes.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"process {number + 1}: {shortly(processes[-1])}", flush=True)
        if options.out:
            options.out.write_text(json.dumps({"machine": describe_machine(), "processes": processes}) + "\n")
    print(table(processes, options.tokens))


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4, help="of new streams in a process")
    parser.add_argument("--turns", type=int, default=10, help="of each server in a round")
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--request-turns", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=200, help="of a reply, for the last column")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


async def measured(folder: Path, options: argparse.Namespace) -> Found:
    """Measure the cost of tokens, and of requests, in turns."""
    tokens: Costs = {}
    requests: Costs = {}
    async with serving_all(DEMO, folder) as variants, StreamReader.started() as reader:
        for variant in variants:
            await request_cost(variant, reader, options.streams)  # warms up
        garbage.settle()
        for _ in range(options.rounds):
            await token_round(variants, reader, options, tokens)
        for _ in range(options.request_turns):
            for variant in random.sample(variants, len(variants)):
                cost = await request_cost(variant, reader, options.streams)
                requests.setdefault(variant.name, []).append(round(cost, 1))
    return {"us_per_token": tokens, "us_per_request": requests}


async def token_round(
    variants: list[Variant], reader: StreamReader, options: argparse.Namespace, costs: Costs
) -> None:
    """Open streams to all servers, and add what a token costs in each turn."""
    num_tokens = 1 + options.turns * options.steps + 1
    for variant in variants:
        await reader.ask(variant.port, options.streams, num_tokens)
        while variant.client.num_running < options.streams:
            await asyncio.sleep(PAUSE_S)
        await cpu_seconds(variant, 1)
    for _ in range(options.turns):
        used = dict.fromkeys([each.name for each in variants], 0.0)
        for _ in range(options.steps):
            for variant in random.sample(variants, len(variants)):
                used[variant.name] += await cpu_seconds(variant, 1)
        for name, seconds in used.items():
            costs.setdefault(name, []).append(round(1e6 * seconds / options.steps / options.streams, 2))
    for variant in variants:
        await cpu_seconds(variant, 1)
        await reader.wait_until_read()


async def request_cost(variant: Variant, reader: StreamReader, num: int) -> float:
    """Return the microseconds of CPU time of a request with SHORT tokens, connection included."""
    before = time.process_time()
    await reader.ask(variant.port, num, SHORT)
    while variant.client.num_running < num:
        await asyncio.sleep(PAUSE_S)
    await cpu_seconds(variant, SHORT)
    await reader.wait_until_read()
    await asyncio.sleep(FLUSH_S)
    return 1e6 * (time.process_time() - before) / num


async def cpu_seconds(variant: Variant, num_steps: int) -> float:
    """Return the CPU time of this process for some steps of a server, from the engine's message to the sockets."""
    messages, used = variant.client.encoded_steps(num_steps), 0.0
    for message in messages:
        before = time.process_time()
        variant.client.deliver(message)
        await asyncio.sleep(PAUSE_S)  # all tasks that the message has woken run before the timer's
        used += time.process_time() - before
    return used


def ratio(costs: Costs, name: str) -> float:
    """Return the median ratio of a server's turns to the mean of the two servers without plugins."""
    return statistics.median(
        own / none for own, none in zip(costs[name], without_plugins(costs), strict=True)
    )


def without_plugins(costs: Costs) -> list[float]:
    """Return the cost in each turn without plugins, of two servers."""
    return [statistics.fmean(both) for both in zip(costs[NONE], costs[AGAIN], strict=True)]


def shortly(found: Found) -> str:
    """Return the ratios of a process."""
    names = list(NAMES)
    return ", ".join(
        f"{name} {' and '.join(f'{ratio(costs, name):.3f}' for costs in found.values())}" for name in names
    )


def table(processes: list[Found], num_tokens: int) -> str:
    """Return the results as Markdown.

    Args:
        num_tokens: tokens of a reply, for the cost of its tokens and its request together.
    """
    lines = [
        f"| server | µs a token | ratio | µs a request | ratio | ratio of a reply of {num_tokens} tokens |",
        "|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        cells = [name]
        for what in ("us_per_token", "us_per_request"):
            middle = statistics.median(statistics.median(found[what][name]) for found in processes)
            cells += [f"{middle:.1f}", spread([ratio(found[what], name) for found in processes])]
        cells.append(
            spread([whole(found, name, num_tokens) / whole(found, None, num_tokens) for found in processes])
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def whole(found: Found, name: str | None, num_tokens: int) -> float:
    """Return the microseconds of a request with its tokens, from medians of turns and of their ratios.

    Args:
        name: the server; None: a server without plugins.
    """
    costs = []
    for what in ("us_per_request", "us_per_token"):
        middle = statistics.median(without_plugins(found[what]))
        costs.append(middle * (1.0 if name is None else ratio(found[what], name)))
    return costs[0] + (num_tokens - SHORT) * costs[1]


def spread(ratios: list[float]) -> str:
    """Return the median of ratios, and the lowest and the highest."""
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


if __name__ == "__main__":
    main()
