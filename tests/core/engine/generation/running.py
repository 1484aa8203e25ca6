"""Runs an engine as clients would: requests come at random times, and their tokens are collected."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams, TokenEvent, TokenLogprob
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry

from ....doubles.trie_grammar import TrieBackend

GREEDY = SamplingParams(temperature=0, max_tokens=24)


TRIE = Entry("grammar", "trie", f"{TrieBackend.__module__}:TrieBackend", "tests", "llmfw-tests", "1.0")


@functools.cache
def installed() -> tuple[Entry, ...]:
    """Return the installed plugins' components. To load the plugins takes a tenth of what an engine's start takes."""
    registry = load_plugins().registry
    return tuple(entry for kind in INTERFACES for entry in registry.entries(kind))


def registry(*doubles: Entry) -> Registry:
    """Return a registry with the installed plugins' components, the double of a grammar backend, and further doubles."""
    return Registry([*installed(), TRIE, *doubles])


def build_engine(folder: Path | str, **settings: object) -> Engine:
    """Build an engine on the CPU in float32, whose pieces of prompts do not depend on the clock."""
    config = {"model": str(folder), "device": "cpu", "dtype": "float32", "context_length": 256}
    config |= {"prefill_stretch": 0} | settings
    return build_generation_engine(EngineConfig(**{"grammar": "trie"} | config), registry())  # type: ignore[arg-type]


@dataclass
class Outcome:
    """All that came of one request."""

    events: list[TokenEvent] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [token for event in self.events for token in event.token_ids]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return [record for event in self.events for record in event.logprobs or ()]

    @property
    def end(self) -> TokenEvent:
        return self.events[-1]


def generate(engine: Engine, requests: Sequence[Request], *, seed: int | None = None) -> list[Outcome]:
    """Return what came of requests. With a seed, they come at random times, else at once."""
    rng = random.Random(seed)
    outcomes = {request.id: Outcome() for request in requests}
    to_come = list(requests)
    while to_come or engine.has_work or engine.stats().num_waiting:
        while to_come and (seed is None or not engine.has_work or rng.random() < 0.3):
            engine.add(to_come.pop(0))
        if not engine.has_work:
            time.sleep(0.001)  # a grammar is being compiled
            continue
        for event in engine.step():
            assert not (outcomes[event.id].events and outcomes[event.id].end.finish_reason)
            outcomes[event.id].events.append(event)
    return list(outcomes.values())


def run(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams | Sequence[SamplingParams] = GREEDY,
    *,
    eos: Sequence[int] = (1,),
    seed: int | None = None,
) -> list[list[int]]:
    """Return what each prompt is continued with. With a seed, requests come at random times, else at once."""
    each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else sampling
    rng = random.Random(seed)
    output: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
    to_come = list(range(len(prompts)))
    while to_come or engine.has_work:
        while to_come and (seed is None or not engine.has_work or rng.random() < 0.3):
            i = to_come.pop(0)
            request = Request(id=str(i), prompt=list(prompts[i]), sampling=each[i], eos_token_ids=tuple(eos))
            engine.add(request)
        for event in engine.step():
            output[event.id] += event.token_ids
    return list(output.values())


def generate_alone(
    folder: Path | str, prompts: Sequence[Sequence[int]], max_tokens: int, eos: int
) -> list[list[int]]:
    """Return what transformers' own `generate` continues each prompt with, one at a time, greedily, in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=0,
        )
        outputs.append(whole[0, len(prompt) :].tolist())
    return outputs


def random_prompts(count: int, vocab_size: int, seed: int = 0) -> list[list[int]]:
    """Return prompts of 1 to 70 tokens; the second half begins alike."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(2, vocab_size) for _ in range(rng.randrange(1, 70))] for _ in range(count)]
    shared = [rng.randrange(2, vocab_size) for _ in range(30)]
    return prompts[: count // 2] + [shared + prompt for prompt in prompts[count // 2 :]]
