"""An engine in this process, driven without a server: requests of random tokens, and the time of each step.

What a request generates is whatever random weights make of it; no token ends it.
"""

from __future__ import annotations

import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import torch
from task import Task

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.imports import garbage
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.step.device.step_clock import StepClock, StepTime

GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True)
class Step:
    """One step of the engine.

    Attributes:
        seconds: from the end of the step before it to its own.
        tokens: that became known by it.
        generated: tokens of all requests before it.
    """

    seconds: float
    tokens: int
    generated: int


@dataclass(frozen=True)
class Window:
    """Steps in which every sequence decoded.

    Attributes:
        median, fastest, slowest: seconds of a step.
        context: mean length of the sequences meanwhile, in tokens.
    """

    median: float
    fastest: float
    slowest: float
    context: float

    @classmethod
    def of(cls, steps: Sequence[Step], batch: int, prompt: int) -> Window:
        """Return the figures of steps of `batch` sequences, whose prompts have so many tokens."""
        times = [step.seconds for step in steps]
        contexts = [prompt + step.generated / batch for step in steps]
        return cls(statistics.median(times), min(times), max(times), statistics.mean(contexts))


class Offline:
    """An engine with random weights.

    Args:
        task: says which model, and how much room there is.
        attention: name of the backend; prompts have the task's `prefill_attention`, if it names one.
        settings: further ones of `EngineConfig`.
    """

    def __init__(self, task: Task, attention: str, **settings: object) -> None:
        sizes = task.sizes
        config: dict[str, object] = {
            "model": str(task.model),
            "load_format": "dummy",
            "device": sizes.device,
            "dtype": sizes.dtype,
            "attention": attention,
            "prefill_attention": task.prefill_attention,
            "context_length": sizes.context,
            "max_total_tokens": sizes.kv_tokens,
            "max_running_requests": sizes.most_running,
        }
        plugins = load_plugins()
        self.device = torch.device(sizes.device)
        self._clock = StepClock(self.device)
        self.engine = build_generation_engine(
            EngineConfig(**(config | settings)), plugins.registry, clock=self._clock
        )
        garbage.settle()  # as the server's engine does; a full collection stops all steps for 0.3 s
        self._vocab = sizes.model["vocab_size"]
        self._rng = random.Random(0)
        self._ids = itertools.count()

    @property
    def attention(self) -> str:
        """The backend in use, or both if prompts have another one."""
        return self.engine.info.attention

    def prompts(self, count: int, length: int, shared: Sequence[int] = ()) -> list[list[int]]:
        """Return random prompts that begin with `shared` and are new otherwise, each of `length` tokens in all."""
        return [[*shared, *self.tokens(length - len(shared))] for _ in range(count)]

    def tokens(self, count: int) -> list[int]:
        """Return random tokens."""
        return [self._rng.randrange(2, self._vocab) for _ in range(count)]

    def start(
        self, prompts: Sequence[Sequence[int]], output: int, sampling: SamplingParams = GREEDY
    ) -> list[str]:
        """Send requests for so many tokens each; return their ids."""
        ids = [str(next(self._ids)) for _ in prompts]
        sampling = msgspec.structs.replace(sampling, max_tokens=output)
        for request_id, prompt in zip(ids, prompts, strict=True):
            self.engine.add(Request(id=request_id, prompt=list(prompt), sampling=sampling))
        return ids

    def run(
        self, prompts: Sequence[Sequence[int]], output: int, sampling: SamplingParams = GREEDY
    ) -> list[Step]:
        """Run requests that come together to their ends; return the steps."""
        before = time.perf_counter()
        self.start(prompts, output, sampling)
        steps: list[Step] = []
        generated = 0
        while self.engine.has_work:
            tokens = self._step()
            now = time.perf_counter()
            steps.append(Step(now - before, tokens, generated))
            before, generated = now, generated + tokens
        return steps

    def step_together(self, batch: int, count: int) -> None:
        """Run steps until `count` of them have given `batch` tokens each, or nothing is left."""
        while count and self.engine.has_work:
            count -= self._step() == batch

    def watch_steps(self, call: Callable[[], object]) -> list[StepTime]:
        """Return what the steps of a call took on the device, but for the first."""
        self._clock.take()
        call()
        return self._clock.take()[1:]

    def _step(self) -> int:
        return sum(len(event.token_ids) for event in self.engine.step())

    def end(self, ids: Sequence[str]) -> None:
        """Abort requests."""
        for request_id in ids:
            self.engine.abort(request_id)
        while self.engine.has_work:
            self.engine.step()


def full_steps(steps: Sequence[Step], batch: int, skip: int = 3) -> list[Step]:
    """Return the steps in which all sequences decoded, but for the first ones, which may hold prompts too."""
    return [step for step in steps if step.tokens == batch][skip:]


def free_memory() -> None:
    """Give back what an engine had that nobody refers to any more."""
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
