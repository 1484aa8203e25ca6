"""Sends requests at given times, whether or not earlier ones have been answered.

So a server that is too slow gets a queue, as it does from clients who do not wait for each other. A fixed number of
requests at a time, as in `runner`, slows down with the server instead, and hides this.
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
    """A conversation to begin at a given time; most have one turn.

    Attributes:
        due: seconds since the beginning of the run.
        turns: the pieces of each turn's prompt.
        output: number of output tokens to ask for in each turn.
    """

    due: float
    turns: Conversation
    output: int


def poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    """Return random times from 0 to `seconds`, ascending, `rate` a second: those of a Poisson process."""
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
    """Return conversations of a workload that begin at random times, `rate` a second, for `seconds` seconds."""
    rng = random.Random(seed)
    times = poisson(rng, rate, seconds)
    conversations = draw_conversations(replace(workload, requests=len(times)), prompts, rng)
    return [Planned(due, turns, workload.output) for due, turns in zip(times, conversations, strict=True)]


async def run_planned(client: CompletionClient, planned: Sequence[Planned], seed: str) -> Run:
    """Begin each conversation at its time. The replies include those of failed requests."""
    started = time.perf_counter()

    async def one(each: Planned) -> list[Reply]:
        due = started + each.due
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        replies = await converse(client, each.turns, each.output)
        replies[0].due = due
        return replies

    replies = [reply for several in await asyncio.gather(*map(one, planned)) for reply in several]
    return ended_run(seed, replies, started)
