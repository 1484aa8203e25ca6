"""What the machine can do at best: the rates that all limits are computed with, measured in the same run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from limits import Ceilings
from lines import Line
from task import Task
from timing import median_seconds
from torch.nn.functional import linear


def measure(task: Task) -> Iterator[Line]:
    """Measure a copy, a large product, and the products of one layer of the model."""
    sizes = task.sizes
    device, dtype = torch.device(sizes.device), getattr(torch, sizes.dtype)
    bandwidth = copy_rate(sizes.copy_bytes, device)
    yield Line(
        f"copy of {sizes.copy_bytes / 2**20:,.0f} MiB",
        ms=2000 * sizes.copy_bytes / bandwidth,
        note=f"{bandwidth / 1e12:.3f} TB/s, read and write",
        detail={"bandwidth": bandwidth},
    )
    flops = product_rate(sizes.cube, device, dtype)
    yield Line(
        f"product of {sizes.cube}-cubes",
        ms=2000 * sizes.cube**3 / flops,
        note=f"{flops / 1e12:.1f} TFLOP/s, {sizes.dtype}, random data",
        detail={"flops": flops},
    )
    yield from layer_lines(task, Ceilings(bandwidth, flops), device, dtype)


def copy_rate(num_bytes: int, device: torch.device) -> float:
    """Return bytes a second, read and written, of a copy."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / median_seconds([lambda: target.copy_(source)], device, 5)


def product_rate(side: int, device: torch.device, dtype: torch.dtype) -> float:
    """Return operations a second of a product of square matrices of random numbers."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return float(2 * side**3 / median_seconds([lambda: a @ b], device, 5))


def layer_lines(task: Task, rates: Ceilings, device: torch.device, dtype: torch.dtype) -> Iterator[Line]:
    """Yield what the matrix products of one layer take, and those of the output layer, by rows."""
    shape = task.shape
    parts = {"one layer's products": shape.matrices, "output layer": [(shape.hidden, shape.vocab)]}
    for name, matrices in parts.items():
        weights = [
            torch.randn(outputs, inputs, device=device, dtype=dtype) * 0.02 for inputs, outputs in matrices
        ]
        numbers = sum(weight.numel() for weight in weights)
        for rows in task.sizes.rows:
            inputs = [torch.randn(rows, weight.shape[1], device=device, dtype=dtype) for weight in weights]
            pairs = list(zip(inputs, weights, strict=True))
            taken = median_seconds([lambda pairs=pairs: [linear(x, w) for x, w in pairs]], device, 20)
            least = max(numbers * dtype.itemsize / rates.bandwidth, 2 * numbers * rows / rates.flops)
            yield Line(f"{name}, {rows} rows", ms=1000 * taken, limit_ms=1000 * least)
