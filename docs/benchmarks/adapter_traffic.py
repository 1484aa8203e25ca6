"""Serves requests for many adapters with few slots: how often an adapter is in a slot, and how long requests wait.

The demo model, with adapters of rank 8 of all its linear layers. Requests arrive at random times; the adapters that they name
follow Zipf's law. All times are processor time of the one thread that computes, so that other work on the machine matters less.
Prints a row of the table in docs/adapters.md for each number of slots.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import AdapterList, ListAdapters, LoadAdapter
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

NUM_ADAPTERS, NUM_REQUESTS, PROMPT, OUTPUT, RANK = 200, 300, 48, 16, 8


def save_adapters(folder: Path, model: str) -> None:
    """Write random adapters."""
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    linears = {
        name: module
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear) and "head" not in name
    }
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": "all-linear",
        "bias": "none",
    }
    for number in range(NUM_ADAPTERS):
        generator = torch.Generator().manual_seed(number)
        tensors = {}
        for name, module in linears.items():
            for letter, shape in (("A", (RANK, module.in_features)), ("B", (module.out_features, RANK))):
                key = f"base_model.model.{name}.lora_{letter}.weight"
                tensors[key] = 0.02 * torch.randn(shape, generator=generator)
        (folder / str(number)).mkdir()
        save_file(tensors, folder / str(number) / "adapter_model.safetensors")
        (folder / str(number) / "adapter_config.json").write_text(json.dumps(config))


def engine_with(model: str, folder: Path, num_slots: int) -> Engine:
    """Return an engine with all adapters loaded."""
    config = EngineConfig(
        model=model, dtype="float32", max_total_tokens=32768, max_adapters=num_slots, max_adapter_rank=RANK,
        max_loaded_adapters=NUM_ADAPTERS, disable_radix_cache=True, max_running_requests=32, log_level="error",
    )  # fmt: skip
    engine = build_generation_engine(config, load_plugins().registry)
    for number in range(NUM_ADAPTERS):
        engine.control(LoadAdapter(f"a{number}", str(folder / str(number))))
        while any(each.state == "loading" for each in adapters_of(engine)):
            time.sleep(0.001)
    assert all(each.state == "ready" for each in adapters_of(engine))
    return engine


def adapters_of(engine: Engine) -> list:
    """Return the engine's adapters."""
    answer = engine.control(ListAdapters())
    assert isinstance(answer, AdapterList)
    return answer.adapters


def traffic(rate: float) -> list[tuple[float, Request]]:
    """Return requests with the times of their arrival, in seconds."""
    rng, numbers = random.Random(0), np.random.default_rng(0)
    weights = 1 / np.arange(1, NUM_ADAPTERS + 1)
    adapters = numbers.choice(NUM_ADAPTERS, NUM_REQUESTS, p=weights / weights.sum())
    at, found = 0.0, []
    for number, adapter in enumerate(adapters):
        at += rng.expovariate(rate)
        prompt = [rng.randrange(10, 200) for _ in range(PROMPT)]
        sampling = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
        found.append((at, Request(id=f"r{number}", prompt=prompt, sampling=sampling, adapter=f"a{adapter}")))
    return found


def play(engine: Engine, arrivals: list[tuple[float, Request]]) -> dict[str, float]:
    """Run the requests; return figures."""
    slots = engine._adapters.assignment
    before = slots.num_found, slots.num_brought
    first: dict[str, float] = {}
    came = {request.id: at for at, request in arrivals}
    waiting, now = list(reversed(arrivals)), 0.0
    while waiting or engine.has_work:
        if not engine.has_work:
            now = max(now, waiting[-1][0])  # no request runs: go on to the next arrival
        while waiting and waiting[-1][0] <= now:
            engine.add(waiting.pop()[1])
        begun = time.thread_time()
        events = engine.step()
        now += time.thread_time() - begun
        for event in events:
            assert not event.error
            first.setdefault(event.id, now)
    ttft = np.array([first[id] - at for id, at in came.items()]) * 1000
    brought, starts = slots.num_brought - before[1], slots.num_found - before[0]
    return {
        "hits": 1 - brought / starts, "p50": float(np.percentile(ttft, 50)), "p99": float(np.percentile(ttft, 99)),
        "most": float(ttft.max()), "tokens": NUM_REQUESTS * OUTPUT / now,
    }  # fmt: skip


def main() -> None:
    """Print a row for each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[4, 8, 16, 32, 64, 200])
    parser.add_argument("--rate", type=float, default=12.0, help="requests per second of processor time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = resolve_model("demo", load_plugins().registry).path
    with tempfile.TemporaryDirectory() as folder:
        save_adapters(Path(folder), model)
        for num_slots in args.slots:
            engine = engine_with(model, Path(folder), num_slots)
            print(f"loaded after {time.process_time():.0f} s of processor time", file=sys.stderr, flush=True)
            play(engine, traffic(args.rate)[:40])  # warms up
            found = play(engine, traffic(args.rate))
            print(
                f"| {num_slots} | {found['hits']:.0%} | {found['p50']:.0f} ms | {found['p99']:.0f} ms | {found['most']:.0f} ms | "
                f"{found['tokens']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
