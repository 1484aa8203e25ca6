"""Built-in profiles, computed from the properties of a model and a machine (a roofline model).

    weights       bytes of all weights except the embedding table, in bf16: read once per step
    arithmetic    2 FLOP per weight and token; 4 FLOP per pair of tokens, query head and head dimension
    context       bytes of a token's keys and values, for each token that is read
    all-reduce    with several GPUs: two per layer, of the hidden state in bf16, over a ring, plus 10 µs each

A step's matrix products take the longer of two times: reading the weights, and computing. The rates of an
H200 were measured: a copy reached 4.3 TB/s, and the product of two 8192×8192 matrices of random bf16 values
reached 788 TFLOP/s. For an H100, the memory rate is 0.9 of the 3.35 TB/s in its data sheet, and the
arithmetic rate is the H200's, because the chip is the same. Profiles assume that steps reach 0.8 of the
memory rate and 0.7 of the arithmetic rate, as good engines do. The host takes 1 ms per step, which overlaps
with the device's work, as in llmfw's loop on a GPU.

`llmfw simulate --fit` measures a profile instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SimulatorError
from ..profile import Profile

MEMORY_SHARE = 0.8
ARITHMETIC_SHARE = 0.7
HOST_S = 1e-3
ALL_REDUCE_S = 1e-5
BF16 = 2


@dataclass(frozen=True)
class Machine:
    """One or more GPUs of one kind.

    Attributes:
        memory: memory bandwidth of each GPU, in bytes/s.
        arithmetic: arithmetic rate of each GPU, in FLOP/s.
        count: number of GPUs.
        link: bandwidth from each GPU to the others, in bytes/s.
    """

    memory: float
    arithmetic: float
    count: int = 1
    link: float = 450e9


@dataclass(frozen=True)
class Model:
    """A dense model with grouped-query attention.

    Attributes:
        weights: number of weights without the embedding table.
        layers: number of layers.
        hidden: width of the hidden states.
        heads, kv_heads, head_dim: geometry of attention.
    """

    weights: float
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int


H200 = Machine(4.3e12, 788e12)
H100 = Machine(0.9 * 3.35e12, 788e12)
LLAMA_8B = Model(8.03e9 - 128256 * 4096, 32, 4096, 32, 8, 128)
LLAMA_70B = Model(70.55e9 - 128256 * 8192, 80, 8192, 64, 8, 128)

NAMED = {
    "8b-h200": (LLAMA_8B, H200),
    "8b-h100": (LLAMA_8B, H100),
    "70b-8xh200": (LLAMA_70B, Machine(H200.memory, H200.arithmetic, count=8)),
}


def named_profile(name: str) -> Profile:
    """Return the built-in profile with this name.

    Raises:
        SimulatorError: no profile has the name; the message lists the known names.
    """
    if name not in NAMED:
        raise SimulatorError(
            f"there is no profile {name!r}, nor a file of that name; known: {', '.join(NAMED)}"
        )
    model, machine = NAMED[name]
    memory = machine.count * machine.memory * MEMORY_SHARE
    arithmetic = machine.count * machine.arithmetic * ARITHMETIC_SHARE
    read = BF16 * model.weights / memory
    per_token = 2 * model.weights / arithmetic
    reduced, waited = _all_reduces(model, machine)
    turn = read / per_token  # number of tokens at which computing takes as long as reading the weights
    points = [(0.0, read + waited), (turn, read + waited + turn * reduced)]
    points.append((2 * turn, 2 * read + waited + 2 * turn * reduced))
    return Profile(
        name=name,
        about="computed, see `llmfw.plugins.simulator.profiles`",
        host=HOST_S,
        points=points,
        per_context=2 * model.layers * model.kv_heads * model.head_dim * BF16 / memory,
        per_pair=4 * model.layers * model.heads * model.head_dim / arithmetic,
        overlap=True,
    )


def _all_reduces(model: Model, machine: Machine) -> tuple[float, float]:
    """Return the time of the all-reduces in seconds: per token, and additionally per step."""
    if machine.count == 1:
        return 0.0, 0.0
    passes = 2 * (machine.count - 1) / machine.count
    per_token = 2 * model.layers * model.hidden * BF16 * passes / machine.link
    return per_token, 2 * model.layers * ALL_REDUCE_S
