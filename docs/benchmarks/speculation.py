"""What prompt lookup brings on text that repeats itself, and what it costs on text that does not.

    .venv/bin/python docs/benchmarks/speculation.py --out docs/benchmarks/speculation.json --page docs/benchmarks.md

Two engines of the demo model, with and without the drafter, answer the same requests in turns (A B A B …), so that what
else the machine does meets both. The same tokens have to come from both, which is checked. Without HTTP.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tables import write_between

from llmfw.api.services.components import build_chat_template
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.model_demo.corpus import Draw, copying_drills

DRAFTER = "prompt-lookup"
COPY, STORY = "copies its prompt, greedy", "tells stories, sampled"
STORIES = ("Tell me a story", "Write a short story about {}", "A story with {}, please")
ABOUT = ("a dog", "the sea", "a king", "two friends", "a train", "an old house", "a robot", "winter")


def main() -> None:
    """Measure all cases in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    registry = load_plugins().registry
    folder = resolve_model("demo", registry).path
    engines = {
        drafter: build_generation_engine(
            EngineConfig(model=folder, drafter=drafter, max_total_tokens=16384, log_level="warning"), registry
        )
        for drafter in ("none", DRAFTER)
    }
    if all(engine.has_own_threads for engine in engines.values()):
        torch.set_num_threads(1)  # as in a server's engine process
    requests = {COPY: copies(folder, options.requests), STORY: stories(folder, options.requests)}
    cases = list(itertools.product(requests, options.at_once))
    turns: list[dict[str, Any]] = []
    for turn in range(-1, options.turns):  # the first one warms up
        for (kind, at_once), (drafter, engine) in itertools.product(cases, engines.items()):
            found = run(engine, requests[kind], at_once, turn)
            if turn >= 0:
                turns.append({"kind": kind, "at_once": at_once, "drafter": drafter, **found})
    check_alike(turns)
    table = as_table(turns, cases)
    print(table)
    if options.out:
        kept = [{key: value for key, value in each.items() if key != "tokens"} for each in turns]
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
    if options.page:
        write_between(options.page, "speculation", table)


def copies(folder: str, num: int) -> list[Request]:
    """Return requests to repeat 8 to 30 words of many sorts, which the demo model does well."""
    drills = itertools.islice(copying_drills(Draw(7)), num)
    chats = [[each for each in drill.messages if each["role"] != "assistant"] for drill in drills]
    sampling = SamplingParams(temperature=0, max_tokens=160)
    return requests_of(folder, chats, [sampling] * num)


def stories(folder: str, num: int) -> list[Request]:
    """Return requests for stories, each with a seed, that go on for 120 tokens."""
    texts = [STORIES[i % len(STORIES)].format(ABOUT[i % len(ABOUT)]) for i in range(num)]
    sampling = [SamplingParams(temperature=1.0, seed=i, max_tokens=120, min_tokens=120) for i in range(num)]
    return requests_of(folder, [[{"role": "user", "content": text}] for text in texts], sampling)


def requests_of(folder: str, chats: Sequence[Any], sampling: Sequence[SamplingParams]) -> list[Request]:
    """Return a request for each chat."""
    tokenizer = load_tokenizer(folder, "auto")
    template = build_chat_template(None, load_plugins().registry, tokenizer)
    return [
        Request(
            id=str(i),
            prompt=tokenizer.encode(template.render(chat), add_special_tokens=False),
            sampling=params,
            eos_token_ids=tuple(tokenizer.eos_token_ids),
        )
        for i, (chat, params) in enumerate(zip(chats, sampling, strict=True))
    ]


def run(engine: Engine, requests: Sequence[Request], at_once: int, turn: int) -> dict[str, Any]:
    """Return what came of the requests, so many at a time, and how long it took."""
    before, to_come = engine.stats(), list(requests)
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    num_open = 0
    begun = time.perf_counter()
    while to_come or num_open:
        while to_come and num_open < at_once:
            engine.add(to_come.pop(0))
            num_open += 1
        for event in engine.step():
            tokens[event.id] += event.token_ids
            num_open -= event.finish_reason is not None
    seconds = time.perf_counter() - begun
    after = engine.stats()
    return {
        "turn": turn,
        "seconds": seconds,
        "tokens": tokens,
        "num_tokens": sum(map(len, tokens.values())),
        "drafted": after.num_drafted_tokens - before.num_drafted_tokens,
        "accepted": after.num_accepted_tokens - before.num_accepted_tokens,
    }


def check_alike(turns: Sequence[dict[str, Any]]) -> None:
    """Say how many outputs differ between the two engines: the last bits of bfloat16 may depend on the step."""
    pairs = zip(turns[::2], turns[1::2], strict=True)
    both = [(one["tokens"][key], other["tokens"][key]) for one, other in pairs for key in one["tokens"]]
    print(f"{sum(one != other for one, other in both)} of {len(both)} outputs differ")


def as_table(turns: Sequence[dict[str, Any]], cases: Sequence[tuple[str, int]]) -> str:
    """Return the table in Markdown: medians of all turns, ratios of neighboring ones with their span."""
    lines = [
        "| the model | at once | tokens/s without | tokens/s with | with ÷ without | guessed a token | of these right |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, at_once in cases:
        sides = {
            drafter: [t for t in turns if (t["kind"], t["at_once"], t["drafter"]) == (kind, at_once, drafter)]
            for drafter in ("none", DRAFTER)
        }
        rates = {side: [t["num_tokens"] / t["seconds"] for t in found] for side, found in sides.items()}
        ratios = sorted(b / a for a, b in zip(rates["none"], rates[DRAFTER], strict=True))
        last = sides[DRAFTER][-1]
        right = f"{last['accepted'] / last['drafted']:.0%}" if last["drafted"] else "–"
        lines.append(
            f"| {kind} | {at_once} | {statistics.median(rates['none']):,.0f} | {statistics.median(rates[DRAFTER]):,.0f} "
            f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
            f"| {last['drafted'] / last['num_tokens']:.2f} | {right} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
