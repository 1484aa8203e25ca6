"""Measures the durations of a model's steps with the real engine; `fit` turns them into a profile.

The engine runs the plain loop, one step after the other, with prompts of random tokens. A step's numbers of
tokens and sequences are taken from its plan. Imports torch, through the engine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from llmfw.core import ConfigError, Request, SamplingParams, load_plugins
from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.trace import QuietTrace

from .fit import Step, fit_profile
from .profile import Profile

OUTPUT = 12  # tokens of each request
LONG_S = 0.5  # prompt lengths are doubled until one prefill takes longer than this
LOAD = 4  # most prompt tokens to run together, as a multiple of the longest prompt's length


@dataclass
class Plans(QuietTrace):
    """A scheduler trace that keeps the last plan."""

    last: BatchPlan | None = field(default=None)

    def planned(self, plan: BatchPlan) -> None:
        self.last = plan


def measure_model(model: str, tell: Callable[[str], None], rounds: int) -> Profile:
    """Measure a model on this machine with the settings of `llmfw serve MODEL`; return its profile.

    Args:
        model: name or folder of the model.
        tell: function that receives progress lines.
        rounds: number of times to run each set of prompts.

    Raises:
        ConfigError: the model cannot be found or loaded, does not generate, or ran too few steps.
    """
    registry = load_plugins().registry
    resolved = resolve_model(model, registry)
    config = EngineConfig(
        model=resolved.path,
        policy=default_name(registry, "policy", "fcfs"),
        disable_radix_cache=True,
        overlap=False,
        log_level="warning",
    )
    plans = Plans()
    engine = build_generation_engine(config, registry, plans)
    rng = random.Random(0)
    list(_run(engine, plans, rng, [_prompt(engine, 8, rng)] * 2))  # a warm-up that is not measured
    longest = _longest(engine, plans, rng)
    steps: list[Step] = []
    tell(f"prompts of up to {longest} tokens")
    for number in range(rounds):
        for prompts in _loads(engine, longest, rng):
            steps.extend(_run(engine, plans, rng, prompts))
        tell(f"round {number + 1} of {rounds}: {len(steps)} steps")
    if len(steps) < 100:
        raise ConfigError(f"model {model!r} ran {len(steps)} steps only: too few to fit anything")
    profile, error = fit_profile(
        steps, resolved.served_name, f"measured on {engine.info.device}, {engine.info.dtype}"
    )
    tell(f"half of the steps are within {error:.1%} of the fitted profile")
    return profile


def _longest(engine: Engine, plans: Plans, rng: random.Random) -> int:
    """Return the longest prompt length to measure: the first whose prefill takes longer than `LONG_S`."""
    length, most = 16, engine.info.max_model_len - OUTPUT
    while length < most:
        steps = _run(engine, plans, rng, [_prompt(engine, length, rng)])
        if sum(step.seconds for step in steps if step.tokens > 1) > LONG_S:
            break
        length *= 2
    return min(length, most)


def _loads(engine: Engine, longest: int, rng: random.Random) -> Iterator[list[list[int]]]:
    """Yield sets of prompts to run together.

    A set is a single prompt, several prompts of one length, or many prompts of different lengths.
    """
    most = min(LOAD * longest, engine.info.max_total_tokens // 2)
    lengths = [2**i for i in range(longest.bit_length()) if 2**i < longest]
    for length in [*lengths, longest]:
        yield [_prompt(engine, length, rng)]
    for length in (8, max(1, longest // 16), max(1, longest // 4), longest):
        for count in (2, 4, 8, 16, 32, 64, 128, 256):
            if count <= engine.info.max_running_requests and count * (length + OUTPUT) <= most:
                yield [_prompt(engine, length, rng) for _ in range(count)]
    yield [_prompt(engine, rng.choice(lengths[: -2 or None]), rng) for _ in range(32)]


def _prompt(engine: Engine, length: int, rng: random.Random) -> list[int]:
    return [rng.randrange(engine.info.vocab_size) for _ in range(length)]


def _run(engine: Engine, plans: Plans, rng: random.Random, prompts: Sequence[list[int]]) -> Iterator[Step]:
    """Run requests, started a few at a time to mix prefill and decode; yield the measured steps."""
    to_come = list(enumerate(prompts))
    while to_come or engine.has_work:
        for number, prompt in to_come[: rng.randrange(1, 9)]:
            sampling = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
            engine.add(Request(id=str(number), prompt=prompt, sampling=sampling))
            to_come.pop(0)
        plans.last = None
        begun = time.perf_counter()
        engine.step()
        seconds = time.perf_counter() - begun
        if plans.last is not None:
            yield Step.of(plans.last, seconds)
