"""Runs a workload once: makes random prompts, keeps `concurrency` requests running, collects the replies.

For requests that do not wait for others, see `open_loop`.
"""

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

Conversation = list[list[Piece]]
"""The pieces of each turn's prompt."""


@dataclass
class Run:
    """One run of a workload.

    Attributes:
        replies: replies of all requests, including failed ones.
        wall: seconds from the start to the last byte.
        started: time of the start, on the clock of the replies.
    """

    seed: str
    replies: list[Reply]
    wall: float
    started: float = 0.0


def ended_run(seed: str, replies: list[Reply], started: float) -> Run:
    """Return the run of these replies, which ended with the last of them."""
    return Run(seed, replies, max(reply.ended for reply in replies) - started, started)


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
    """Run the workload once, with random prompts from `seed`, `concurrency` conversations at a time.

    The replies include those of failed requests.
    """
    gate = asyncio.Semaphore(workload.concurrency)

    async def one(turns: Conversation) -> list[Reply]:
        async with gate:
            return await converse(client, turns, workload.output)

    conversations = draw_conversations(workload, prompts, random.Random(seed))
    started = time.perf_counter()
    replies = [reply for several in await asyncio.gather(*map(one, conversations)) for reply in several]
    return ended_run(seed, replies, started)


def draw_conversations(workload: Workload, prompts: PromptSource, rng: random.Random) -> list[Conversation]:
    """Return the random prompts of all requests of a workload.

    If `workload.shared` is above 0, all prompts start with the same tokens.
    """
    shared = [prompts.draw(rng, workload.shared)] if workload.shared else []
    drawn = [
        [[prompts.draw(rng, workload.prompt)] for _ in range(workload.turns)]
        for _ in range(workload.requests)
    ]
    return [[shared + first, *others] for first, *others in drawn]


async def converse(client: CompletionClient, turns: Conversation, output: int) -> list[Reply]:
    """Run one conversation, which may be a single request; return its replies. A failed turn ends it.

    Args:
        output: number of output tokens to ask for in each turn.
    """
    dialogue = Dialogue(client.api)
    replies: list[Reply] = []
    for turn, pieces in enumerate(turns):
        reply = await client.complete(dialogue.ask(*pieces), output, turn)
        replies.append(reply)
        if reply.error is not None:
            break
        dialogue.answer(reply.text)
    return replies
