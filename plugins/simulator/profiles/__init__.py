"""Named profiles, computed from the properties of a model and a machine, without any measured step.

    weights       bytes of all weights but the embedding table, in bf16: read once a step
    arithmetic    2 FLOP for each of these weights and token; 4 for each pair of tokens, query head and head dimension
    context       bytes of keys and values of a token, for each token that is read
    all-reduce    two a layer, of the hidden state in bf16, over a ring; and 10 µs each, where GPUs work together

A step's products take the longer of reading and computing. The rates of an H200 were measured: a copy reached 4.3 TB/s,
and a product of 8192-cubes of random bf16 values 788 TFLOP/s. For an H100, the memory rate is 0.9 of the 3.35 TB/s in
its data sheet, and the arithmetic rate is the H200's, because the chip is the same. Profiles assume that steps reach
0.8 of the memory rate and 0.7 of the arithmetic rate, as good engines do. The host's 1 ms is hidden behind the device,
as llmfw's loop hides it on a GPU.

`llmfw simulate --fit` measures instead.
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
    """GPUs of one kind. Rates of each: bytes/s, FLOP/s, bytes/s to the others."""

    memory: float
    arithmetic: float
    count: int = 1
    link: float = 450e9


@dataclass(frozen=True)
class Model:
    """A dense model with grouped queries. `weights` counts all weights except the embedding table."""

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
    """Return the profile of that name.

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
    turn = read / per_token  # the number of tokens at which computing takes as long as reading
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
    """Return the seconds that all-reduces take for each token, and for each step."""
    if machine.count == 1:
        return 0.0, 0.0
    passes = 2 * (machine.count - 1) / machine.count
    per_token = 2 * model.layers * model.hidden * BF16 * passes / machine.link
    return per_token, 2 * model.layers * ALL_REDUCE_S
