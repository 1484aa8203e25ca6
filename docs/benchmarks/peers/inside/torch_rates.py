"""How fast torch sums what is in memory, and multiplies square matrices, with all cores; run as a script, prints JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial

import torch

CUBE = 2048
TRIES = 7


def main() -> None:
    """Print GB/s, and TFLOP/s in float32 and in bfloat16; each is the best of several tries."""
    torch.set_num_threads(os.cpu_count() or 1)
    numbers = torch.ones(1 << 28)
    found = {"read_gb_s": numbers.nbytes / fastest(numbers.sum) / 1e9}
    for name, dtype in (("f32_tflop_s", torch.float32), ("bf16_tflop_s", torch.bfloat16)):
        a, b = (torch.randn(CUBE, CUBE).to(dtype) for _ in range(2))
        found[name] = 2 * CUBE**3 / fastest(partial(torch.matmul, a, b)) / 1e12
    print(json.dumps(found))


def fastest(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several calls, after one that does not count."""
    call()
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


if __name__ == "__main__":
    main()
