"""Time torch's linear against a packed one, in turns: .venv/bin/python docs/benchmarks/packed_linear.py

bfloat16, two threads, the products of SmolLM2-135M's shape. Several copies of each weight are used in turn, so that
they come from memory and not from the cache. Prints a Markdown table: medians in µs, ratio with its spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from llmfw.core.model.changes.pack import PackedLinear

PRODUCTS = {
    "q/k/v": (576, 960),
    "o": (576, 576),
    "gate/up": (576, 3072),
    "down": (1536, 576),
    "head": (576, 49152),
}
ROWS = (1, 16, 256)
CACHE_BYTES = 256 << 20
ROUNDS = 7


def main() -> None:
    """Print the table."""
    torch.set_num_threads(2)
    print("| product | rows | linear, µs | packed, µs | times as fast (lowest to highest of 7) |")
    print("|---|---|---|---|---|")
    for name, (width_in, width_out) in PRODUCTS.items():
        count = max(2, CACHE_BYTES // (2 * width_in * width_out) // 8)
        plain = [nn.Linear(width_in, width_out, bias=False, dtype=torch.bfloat16) for _ in range(count)]
        packed = [PackedLinear(linear) for linear in plain]
        for rows in ROWS:
            hidden = torch.randn(rows, width_in).bfloat16()
            turns = [(per_call(plain, hidden), per_call(packed, hidden)) for _ in range(ROUNDS)]
            ratios = sorted(a / b for a, b in turns)
            times = " | ".join(f"{1e6 * statistics.median(each):.0f}" for each in zip(*turns, strict=True))
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"| {name} {width_in}×{width_out} | {rows} | {times} | {spread} |", flush=True)


@torch.inference_mode()
def per_call(layers: list[Callable[[torch.Tensor], torch.Tensor]], hidden: torch.Tensor) -> float:
    """Return the seconds of one call, over all layers once."""
    begun = time.perf_counter()
    for layer in layers:
        layer(hidden)
    return (time.perf_counter() - begun) / len(layers)


if __name__ == "__main__":
    main()
