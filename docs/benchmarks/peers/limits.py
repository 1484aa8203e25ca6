"""How many output tokens a second a workload can have at most, at the rates of a machine and with ideal reuse of prefixes.

    prompts: arithmetic of their tokens without the head, and of one row of the head each; at least one reading of the weights
        for each wave of requests (and turn of a conversation)
    each further token: all weights are read once for all requests of the wave, or their arithmetic, whichever takes longer

What is left out and is real: attention, keys and values, sampling, HTTP. What makes a figure above the limit possible:
a cache that holds the weights is faster than memory. Knows nothing of servers, and imports neither torch nor llmfw.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Load(Protocol):
    """The numbers of a workload, as `llmfw.plugins.bench.workloads.Workload` has them."""

    @property
    def requests(self) -> int: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def prompt(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def turns(self) -> int: ...


@dataclass(frozen=True)
class Weights:
    """Of a decoder whose head is its embedding, in bfloat16.

    Attributes:
        all: how many.
        head: how many of them are the head's.
    """

    all: int
    head: int

    @classmethod
    def of(cls, folder: Path) -> Weights:
        """Count those of a model folder, from the header of its safetensors file."""
        with (folder / "model.safetensors").open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        sizes = {name: math.prod(about["shape"]) for name, about in header.items() if name != "__metadata__"}
        return cls(sum(sizes.values()), sizes["model.embed_tokens.weight"])


@dataclass(frozen=True)
class Rates:
    """What a machine reaches: bytes a second that are read, and floating-point operations a second."""

    read: float
    flops: float


def most_tokens_per_second(weights: Weights, rates: Rates, load: Load) -> float:
    """Return the output tokens a second that a workload can have at most."""
    rows = min(load.concurrency, load.requests)
    waves = math.ceil(load.requests / rows) * load.turns
    prompt_tokens = load.shared + load.requests * load.turns * load.prompt
    reading = 2 * weights.all / rates.read
    body = 2 * (weights.all - weights.head) * prompt_tokens
    heads = 2 * weights.head * load.requests * load.turns
    prompts = max((body + heads) / rates.flops, waves * reading)
    step = max(reading, 2 * weights.all * rows / rates.flops)
    seconds = prompts + waves * (load.output - 1) * step
    return load.requests * load.turns * load.output / seconds
