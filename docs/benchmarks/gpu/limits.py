"""How fast a model can be at best: the time that a step's bytes and arithmetic take at the rates of a machine.

    step limit = max(weights / bandwidth, arithmetic / rate) + keys and values / bandwidth

What is left out and is real: activations through memory, sampling, gaps between kernels. Knows nothing of engines, and
imports neither torch nor llmfw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped heads and a gated MLP, as Llama is.

    Attributes:
        hidden, intermediate, vocab: widths.
        layers, heads, kv_heads, head_dim: of attention.
        tied: the output layer is the embedding.
        value_bytes: of one weight.
        kv_value_bytes: of one key or value.
    """

    hidden: int
    intermediate: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool = False
    value_bytes: int = 2
    kv_value_bytes: int = 2

    @classmethod
    def of(cls, config: dict[str, Any], value_bytes: int = 2) -> Shape:
        """Return the shape that a Llama's config.json names, all of one dtype."""
        return cls(
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            tied=config["tie_word_embeddings"],
            value_bytes=value_bytes,
            kv_value_bytes=value_bytes,
        )

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """The matrix products of one layer, as they run: inputs and outputs of each."""
        merged = (self.heads + 2 * self.kv_heads) * self.head_dim
        return [
            (self.hidden, merged),
            (self.heads * self.head_dim, self.hidden),
            (self.hidden, 2 * self.intermediate),
            (self.intermediate, self.hidden),
        ]

    @property
    def body(self) -> int:
        """Weights of all layers and of the norms."""
        layer = sum(inputs * outputs for inputs, outputs in self.matrices) + 2 * self.hidden
        return self.layers * layer + self.hidden

    @property
    def head(self) -> int:
        """Weights of the output layer."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.body + self.head * (1 if self.tied else 2)

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that a step reads: all but the embedding, of which it reads some rows only."""
        return (self.body + self.head) * self.value_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_value_bytes


@dataclass(frozen=True)
class Ceilings:
    """What a machine reaches at best.

    Attributes:
        bandwidth: bytes a second, read and written together, of a copy.
        flops: of a large matrix product.
    """

    bandwidth: float
    flops: float


@dataclass(frozen=True)
class StepLimit:
    """The parts of a decode step at the machine's rates, in seconds."""

    weights: float
    arithmetic: float
    kv: float

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return max(self.weights, self.arithmetic) + self.kv


def step_limit(shape: Shape, rates: Ceilings, batch: int, context: float) -> StepLimit:
    """Return what a decode step of so many sequences takes at least; `context` is their mean length in tokens."""
    return StepLimit(
        weights=shape.step_bytes / rates.bandwidth,
        arithmetic=2 * (shape.body + shape.head) * batch / rates.flops,
        kv=batch * context * shape.kv_bytes / rates.bandwidth,
    )


def decode_seconds(shape: Shape, rates: Ceilings, batch: int, prompt: int, output: int) -> float:
    """Return what the decode steps of `batch` equal requests take at least: all tokens of them but the first."""
    contexts = range(prompt + 1, prompt + output)
    return sum(step_limit(shape, rates, batch, context).seconds for context in contexts)


def prefill_seconds(
    shape: Shape, rates: Ceilings, requests: int, tokens: int, cached: int = 0, chunk: int = 8192
) -> float:
    """Return what the prompts of `requests` requests take at least, up to their first tokens.

    Args:
        tokens: of each prompt that are computed.
        cached: of each prompt that are not, as they stand in the cache.
        chunk: most tokens of one step; each step reads the weights.
    """
    total = requests * tokens
    pairs = requests * tokens * (cached + (tokens + 1) / 2)
    attention = 4 * shape.heads * shape.head_dim * shape.layers * pairs
    arithmetic = 2 * shape.body * total + attention + 2 * shape.head * requests
    reading = shape.step_bytes * -(-total // chunk)
    return max(arithmetic / rates.flops, reading / rates.bandwidth)


def workload_seconds(
    shape: Shape, rates: Ceilings, batch: int, prompt: int, output: int, shared: int = 0
) -> float:
    """Return what `batch` equal requests that come together take at least, from the first prompt to the last token.

    Args:
        prompt: tokens of each, with `shared` that all begin with and that are computed once.
        output: tokens of each.
    """
    first = prefill_seconds(shape, rates, batch, prompt - shared, shared)
    return first + decode_seconds(shape, rates, batch, prompt, output)


@dataclass(frozen=True)
class Goal:
    """What a case has to reach (`must`), and what it should (`goal`), as a ratio to its limit."""

    must: float
    goal: float


GOALS = {
    "decode 1": Goal(0.70, 0.85),
    "decode 8": Goal(0.65, 0.80),
    "decode 64": Goal(0.65, 0.80),
    "decode 100": Goal(0.60, 0.75),
    "decode 256": Goal(0.58, 0.72),
    "decode 500": Goal(0.60, 0.75),
    "prefill": Goal(0.65, 0.80),
    "sampling": Goal(0.90, 0.97),
    "attention flashinfer": Goal(0.75, 0.85),
    "attention triton": Goal(0.60, 0.75),
    "http 100": Goal(0.90, 0.97),
    "http 500": Goal(0.80, 0.90),
}
"""By case. Of sampling: the ratio to greedy steps. Of HTTP: the ratio to the same engine without HTTP."""

MOST_IDLE_MS = Goal(must=0.300, goal=0.100)
"""Milliseconds between two decode steps in which the GPU does nothing."""
