"""Sends requests at given times, whether or not earlier requests have been answered.

So a queue grows on a server that is too slow, as it does if many independent clients send requests. `runner`
hides such a queue: with a fixed number of running requests, it slows down with the server.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .client import CompletionClient
from .errors import BenchError
from .prompts import PromptSource
from .reply import Reply
from .runner import Conversation, Run, converse, draw_conversations, ended_run
from .workloads import Workload

MAX_REQUESTS = 200_000  # prompts are made before the run, and stay in memory


@dataclass(frozen=True)
class Planned:
    """A conversation that starts at a given time; most have one turn.

    Attributes:
        due: start time, in seconds since the start of the run.
        turns: the pieces of each turn's prompt.
        output: number of output tokens to ask for in each turn.
    """

    due: float
    turns: Conversation
    output: int


def poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    """Return the times of a Poisson process from 0 to `seconds`, ascending, on average `rate` per second."""
    times: list[float] = []
    now = rng.expovariate(rate)
    while now < seconds:
        times.append(now)
        if len(times) > MAX_REQUESTS:
            raise BenchError(
                f"--rate {rate:g} for --duration {seconds:g} make more than {MAX_REQUESTS:,} requests; lower one of them"
            )
        now += rng.expovariate(rate)
    return times or [0.0]


def at_rate(
    workload: Workload, prompts: PromptSource, seed: str, rate: float, seconds: float
) -> list[Planned]:
    """Return a workload's conversations at random times, on average `rate` per second, for `seconds`."""
    rng = random.Random(seed)
    times = poisson(rng, rate, seconds)
    conversations = draw_conversations(replace(workload, requests=len(times)), prompts, rng)
    return [Planned(due, turns, workload.output) for due, turns in zip(times, conversations, strict=True)]


async def run_planned(client: CompletionClient, planned: Sequence[Planned], seed: str) -> Run:
    """Start each conversation at its time. The replies include those of failed requests."""
    started = time.perf_counter()

    async def one(each: Planned) -> list[Reply]:
        due = started + each.due
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        replies = await converse(client, each.turns, each.output)
        replies[0].due = due
        return replies

    replies = [reply for several in await asyncio.gather(*map(one, planned)) for reply in several]
    return ended_run(seed, replies, started)
