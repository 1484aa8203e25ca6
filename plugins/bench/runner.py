"""Runs a workload once: makes random prompts, keeps `concurrency` requests running, collects the replies."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from .client import CompletionClient
from .dialogue import Dialogue
from .errors import BenchError
from .prompts import WORDS, Piece, PromptSource, WordText, join_words
from .reply import Reply
from .workloads import Workload


@dataclass
class Run:
    """One run of a workload: its replies, and its wall time in seconds, from first request to last byte."""

    seed: str
    replies: list[Reply]
    wall: float


async def calibrate(client: CompletionClient) -> WordText:
    """Measure the server's tokens per word with two requests, one of a single word and one of all words.

    Raises:
        BenchError: as in `CompletionClient.probe`; or the server's prompt token counts make no sense.
    """
    shuffled = random.Random(0).sample(WORDS, len(WORDS))
    one = await client.probe(Dialogue(client.api).ask(join_words(shuffled[:1])))
    all_ = await client.probe(Dialogue(client.api).ask(join_words(shuffled)))
    grown = (all_.prompt_tokens or 0) - (one.prompt_tokens or 0)
    rate = grown / (len(WORDS) - 1)
    if not 0.5 < rate < 12:
        raise BenchError(
            f"{client.base_url} counts {grown} more prompt tokens for {len(WORDS) - 1} more words; "
            "give --tokenizer FOLDER"
        )
    return WordText(rate)


async def run_workload(client: CompletionClient, workload: Workload, prompts: PromptSource, seed: str) -> Run:
    """Run the workload once, with random prompts from `seed`.

    The replies include those of failed requests.
    """
    rng = random.Random(seed)
    shared = [prompts.draw(rng, workload.shared)] if workload.shared else []
    drawn = [
        [prompts.draw(rng, workload.prompt) for _ in range(workload.turns)] for _ in range(workload.requests)
    ]
    gate = asyncio.Semaphore(workload.concurrency)
    started = time.perf_counter()
    conversations = (_converse(client, workload, [*shared], pieces, gate) for pieces in drawn)
    replies = [reply for several in await asyncio.gather(*conversations) for reply in several]
    return Run(seed, replies, max(reply.ended for reply in replies) - started)


async def _converse(
    client: CompletionClient,
    workload: Workload,
    shared: list[Piece],
    pieces: list[Piece],
    gate: asyncio.Semaphore,
) -> list[Reply]:
    """Run one conversation, which may be a single request; return its replies. A failed turn ends it."""
    dialogue = Dialogue(client.api)
    replies: list[Reply] = []
    async with gate:
        for turn, piece in enumerate(pieces):
            content = dialogue.ask(*(shared if turn == 0 else ()), piece)
            reply = await client.complete(content, workload.output, turn)
            replies.append(reply)
            if reply.error is not None:
                break
            dialogue.answer(reply.text)
    return replies
