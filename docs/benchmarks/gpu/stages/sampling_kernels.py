"""Choosing tokens alone: greedy, and at temperature 0.6 with and without top_p 0.9, by torch and by Triton."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch
from lines import Line, line_of_error
from task import Task
from timing import median_seconds, watch_kernels

from llmfw.core.interfaces.token_sampler import Filters, RowNumbers
from llmfw.core.step.sampling.draw import sample_all as all_by_torch
from llmfw.core.step.sampling.select import sample_selected as selected_by_torch

CALLS = 10
SPREADS = {"flat": 0.6, "peaked": 3.0}
"""Standard deviation of the logits: those of random weights are flat, those of a language model peaked."""


def measure(task: Task) -> Iterator[Line]:
    """Measure each number of rows. The ratio is that of greedy choice to the others."""
    device = torch.device(task.sizes.device)
    for rows in task.sizes.chosen_rows:
        for spread, deviation in SPREADS.items():
            logits = torch.randn(rows, task.sizes.model["vocab_size"], device=device) * deviation
            numbers = row_numbers(logits)
            greedy = None
            for way, call in ways(logits, numbers, device).items():
                case = f"choose {rows} tokens, {spread}, {way}"
                try:
                    line = measure_call(case, call, device)
                except Exception as error:  # noqa: BLE001 - one way's line; the others are measured
                    yield line_of_error(case, error)
                    continue
                greedy = greedy or line.ms
                line.limit_ms, line.ratio = greedy, greedy / line.ms
                yield line


def row_numbers(logits: torch.Tensor) -> RowNumbers:
    """Return the parameters of rows that all ask for temperature 0.6 and top_p 0.9."""
    rows, vocab_size = logits.shape
    column = torch.ones(rows, 1, device=logits.device)
    draws = torch.rand(rows, dtype=torch.float64, device=logits.device) * (1 - 2**-32)
    return RowNumbers(draws, column * 0.6, column.long() * vocab_size, column * 0.9, column * 0)


def ways(
    logits: torch.Tensor, numbers: RowNumbers, device: torch.device
) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the ways of choosing tokens that this device has."""
    filters = Filters(top_k=False, top_p=True, min_p=False, largest_top_k=logits.shape[1])
    found = {
        "greedy": lambda: logits.argmax(dim=-1),
        "top_p 0.9 by torch": lambda: selected_by_torch(logits, numbers, filters),
        "temperature by torch": lambda: all_by_torch(logits, numbers),
    }
    if device.type == "cuda" and importlib.util.find_spec("triton"):
        from llmfw.plugins.sampling_triton import ops

        found["top_p 0.9 by Triton"] = lambda: ops.sample_selected(logits, numbers, False)
        found["temperature by Triton"] = lambda: ops.sample_all(logits, numbers)
    return found


def measure_call(case: str, call: Callable[[], torch.Tensor], device: torch.device) -> Line:
    """Return the line of a call: what its kernels take on a GPU, else what it takes."""
    with torch.inference_mode():
        between = median_seconds([call], device, CALLS)
        kernels = watch_kernels(lambda: [call() for _ in range(CALLS)], device)
    seconds = kernels.busy / CALLS if kernels else between
    detail = {"between_events_ms": 1000 * between}
    if kernels:
        detail |= {"kernels_s": kernels.by_name, "kernels": kernels.count / CALLS}
    return Line(case, ms=1000 * seconds, note=f"{1000 * between:.3f} ms between events", detail=detail)
