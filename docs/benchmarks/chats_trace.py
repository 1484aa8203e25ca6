"""Writes a synthetic trace of conversations: several turns each, over a few system prompts of unequal popularity.

    .venv/bin/python docs/benchmarks/chats_trace.py --chats-per-s 1 --seconds 400 --seed 0 > chats.jsonl

Each turn's prompt is the conversation so far, with the answers: a server that still has it computes only what is
new. The next turn comes a random time after the time that an answer usually takes. The same seed gives the same trace.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

BLOCK = 16
NUM_SYSTEM_PROMPTS = 12
NUM_TURNS = 8
SYSTEM_TOKENS = (512, 4096)
USER_TOKENS = (32, 512)
ANSWER_TOKENS = (64, 384)
THINKING_S = 8.0
ANSWER_S_PER_TOKEN = 0.02


def chats(per_s: float, seconds: float, seed: int) -> list[dict[str, Any]]:
    """Return the requests of all conversations, in the order of arrival, as lines of a trace.

    Args:
        per_s: new conversations a second, on average; they come at random times.
        seconds: time within which conversations begin.
    """
    rng = random.Random(seed)
    fresh = itertools.count()
    prompts = [blocks(fresh, rng, SYSTEM_TOKENS) for _ in range(NUM_SYSTEM_PROMPTS)]
    shares = [1 / rank for rank in range(1, 1 + NUM_SYSTEM_PROMPTS)]
    lines: list[dict[str, Any]] = []
    now = rng.expovariate(per_s)
    while now < seconds:
        lines += chat(fresh, rng, now, rng.choices(prompts, shares)[0])
        now += rng.expovariate(per_s)
    return sorted(lines, key=lambda line: line["timestamp"])


def chat(fresh: Iterator[int], rng: random.Random, now: float, system: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the requests of one conversation."""
    so_far = list(system)
    for _ in range(rng.randint(1, 2 * NUM_TURNS - 1)):
        so_far += blocks(fresh, rng, USER_TOKENS)
        answer = blocks(fresh, rng, ANSWER_TOKENS)
        yield {
            "timestamp": round(1e3 * now, 3),
            "input_length": BLOCK * len(so_far),
            "output_length": BLOCK * len(answer),
            "hash_ids": list(so_far),
            "output_hash_ids": answer,
            "block_size": BLOCK,
        }
        so_far += answer
        now += ANSWER_S_PER_TOKEN * BLOCK * len(answer) + rng.expovariate(1 / THINKING_S)


def blocks(fresh: Iterator[int], rng: random.Random, tokens: tuple[int, int]) -> list[int]:
    """Return new blocks. `tokens` are the smallest and the largest number of tokens in all, equally likely."""
    return [next(fresh) for _ in range(rng.randint(*tokens) // BLOCK)]


def main() -> None:
    """Write the trace to standard output."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chats-per-s", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for line in chats(options.chats_per_s, options.seconds, options.seed):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
