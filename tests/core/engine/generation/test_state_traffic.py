"""Families whose layers keep states, under everything at once: each token is the one that transformers chooses alone.

The six engines of a family serve 240 prompts, most of which begin with some tokens of an earlier prompt and its answer.
Requests come and are aborted at random times, some prompts have three choices with seeds of their own, and the KV
cache is so small that requests are retracted. All in float32.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.step.sampling.randomness import uniform

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import VOCAB_SIZE, tiny_config
from ....models.trial import load_reference, reference_logprobs
from .running import Outcome, build_engine

FAMILIES = (
    *("qwen3_5_text", "qwen3_next", "lfm2", "granitemoehybrid", "nemotron_h", "falcon_h1"),
    *("kimi_linear", "jamba", "mamba2"),
)
ENGINES = ((16, True), (64, False), (512, True))
NUM_TURNS = 4
NUM_PROMPTS = 40
NUM_TOKENS = 12
NUM_CHOICES = 3
CONTEXT = 640
LONG = range(520, 620)
"""Lengths of a few prompts: two pieces even in chunks of 512."""
CLOSE = 1e-4
"""Choices of which transformers holds one no more than this much likelier may be decided by rounding."""
MAX_CLOSE = 1
"""Largest number of such choices among all tokens of an engine's answers, about 670."""


class Choices:
    """What transformers, alone and in float32, chooses after each token of a prompt and its answer."""

    def __init__(self, folder: Path) -> None:
        self._model = load_reference(folder)
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    def shortfalls(self, request: Request, tokens: list[int]) -> list[float]:
        """Return by how much each token misses being the choice; 0: it is the choice."""
        whole = (*request.prompt, *tokens)
        first = len(request.prompt)
        if whole not in self._known:
            self._known[whole] = reference_logprobs(self._model, whole)[first - 1 : -1]
        expected, chosen = self._known[whole], torch.tensor(tokens)[:, None]
        if not request.sampling.temperature:
            return (expected.max(dim=1).values - expected.gather(1, chosen)[:, 0]).tolist()
        sums = expected.double().softmax(dim=1).cumsum(dim=1)
        seeds = np.full(len(tokens), request.sampling.seed, np.uint64)
        draws = torch.from_numpy(uniform(seeds, np.arange(first, first + len(tokens))))
        upper = sums.gather(1, chosen)[:, 0]
        lower = upper - expected.double().softmax(dim=1).gather(1, chosen)[:, 0]
        return torch.maximum(draws - upper, lower - draws).clamp(min=0).tolist()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Choices]:
    kind: str = request.param
    limit = {"mamba2": None, "kimi_linear": "model_max_length"}.get(kind, "max_position_embeddings")
    longer = {limit: 2 * CONTEXT} if limit else {}
    folder = save_checkpoint(tiny_config(kind, **longer), tmp_path_factory.mktemp(kind))
    return folder, Choices(folder)


def draw(rng: random.Random, num: int) -> list[int]:
    return [rng.randrange(2, VOCAB_SIZE) for _ in range(num)]


def draw_prompts(rng: random.Random, texts: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield the prompts of a turn. Most of them continue some beginning of an earlier text."""
    yield draw(rng, rng.choice(LONG))
    for _ in range(NUM_PROMPTS // NUM_TURNS - 1):
        text = rng.choice(texts)
        shared = text[: rng.randrange(1, min(len(text), 150) + 1)] if rng.random() < 0.7 else []
        yield shared + draw(rng, rng.choice([1, 9, 30, 60]))


def requests_of(name: str, prompt: list[int], seed: int | None) -> list[Request]:
    """Return the request for a prompt: greedy, or sampled choices with a seed for each."""
    options = [{"temperature": 0.0}]
    if seed is not None:
        options = [{"temperature": 1.0, "seed": seed + i} for i in range(NUM_CHOICES)]
    return [
        Request(
            id=f"{name} {i}",
            prompt=prompt,
            sampling=SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **each),  # type: ignore[arg-type]
        )
        for i, each in enumerate(options)
    ]


def play(
    engine: Engine, requests: Sequence[Request], aborted: Sequence[Request], rng: random.Random
) -> dict[str, Outcome]:
    """Return what came of requests that come at random times, while others come and are aborted."""
    outcomes = {request.id: Outcome() for request in requests}
    to_come = [*requests, *aborted]
    rng.shuffle(to_come)
    leaving = {request.id for request in aborted}
    present: set[str] = set()
    while to_come or engine.has_work:
        while to_come and (not engine.has_work or rng.random() < 0.8):
            if to_come[-1].id in leaving:
                present.add(to_come[-1].id)
            engine.add(to_come.pop())
        for name in [each for each in present if rng.random() < 0.2]:
            present.remove(name)
            engine.abort(name)
        for event in engine.step():
            if event.id in outcomes:
                outcomes[event.id].events.append(event)
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize(("chunk", "overlap"), ENGINES)
def test_each_token_is_chosen_by_transformers_alone(
    family: tuple[Path, Choices], chunk: int, overlap: bool
) -> None:
    folder, choices = family
    engine = build_engine(
        folder,
        grammar="none",
        context_length=CONTEXT,
        max_running_requests=24,
        chunked_prefill_size=chunk,
        overlap=overlap,
        page_size=4 if overlap else 1,
        max_total_tokens=CONTEXT,
        schedule_conservativeness=0.01,
        max_state_snapshots=8,
    )
    rng, hits, shortfalls = random.Random(f"{chunk} {overlap}"), list[int](), list[float]()
    texts = [draw(rng, 70)]
    for turn in range(NUM_TURNS):
        requests = [
            request
            for i, prompt in enumerate(draw_prompts(rng, texts))
            for request in requests_of(f"{turn} {i}", prompt, None if i % 5 else 100 * turn + i)
        ]
        gone = [
            each
            for i in range(4)
            for each in requests_of(f"{turn} gone {i}", rng.choice(texts)[:150] + draw(rng, 20), None)
        ]
        outcomes = play(engine, requests, gone, random.Random(f"{turn} {chunk} {overlap}"))
        for request in requests:
            outcome = outcomes[request.id]
            assert len(outcome.token_ids) == NUM_TOKENS
            shortfalls += choices.shortfalls(request, outcome.token_ids)
            hits.append(outcome.events[0].cached_tokens)
            texts.append(request.prompt + outcome.token_ids)
    missed = [each for each in shortfalls if each > 0]
    print(
        f"{folder.name} {chunk} {overlap}: {len(shortfalls)} tokens, missed {missed}, "
        f"{len(set(hits)) - 1} lengths of hits, {engine.stats().num_retractions} retractions"
    )
    assert max(shortfalls) <= CLOSE
    assert len(missed) <= MAX_CLOSE
    assert len(set(hits)) > 4
    assert engine.stats().num_retractions > 0
