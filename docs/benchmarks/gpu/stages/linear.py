"""Products of few rows with the weights of linear layers: torch's, and our kernels', cut into programs in several ways.

Each weight has copies, together more than any cache of the GPU holds. On a GPU the time is that of replaying a CUDA
graph of several products, as launching one takes longer than computing it. On a CPU torch's products alone are measured.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator

import torch
from cuts import Cut, Product, compile_all, cuts, is_served
from limits import Ceilings
from lines import Line, line_of_error
from task import Task
from timing import median_seconds
from torch.nn.functional import linear

CALLS = 12
REPLAYS = 4
MAX_ERROR = 0.1
"""Of one output, relative to their root mean square. Rounding to bfloat16 gives about 0.02."""

Call = Callable[[], object]


@torch.inference_mode()
def measure(task: Task) -> Iterator[Line]:
    """Measure each weight of the model with each number of rows."""
    sizes, shape = task.sizes, task.shape
    device, dtype = torch.device(sizes.device), getattr(torch, sizes.dtype)
    has_kernel = device.type == "cuda" and importlib.util.find_spec("triton") is not None
    matrices = [*shape.matrices, (shape.hidden, shape.vocab)]
    compiled = _compile(task, matrices, device, dtype) if has_kernel else {}
    for num_inputs, num_outputs in matrices:
        count = max(1, -(-sizes.spread_bytes // (num_inputs * num_outputs * dtype.itemsize)))
        weights = [
            torch.randn(num_outputs, num_inputs, device=device, dtype=dtype) * 0.02 for _ in range(count)
        ]
        for rows in sizes.few_rows:
            case = f"{num_outputs} × {num_inputs}, {rows} rows"
            hidden = torch.randn(rows, num_inputs, device=device, dtype=dtype)
            try:
                tried = cuts(rows, num_outputs, num_inputs, device) if has_kernel else []
                line = _measure_case(case, hidden, weights, task.ceilings, tried)
            except Exception as error:  # noqa: BLE001 - one case's line; the others are measured
                line = line_of_error(case, error)
            line.detail |= compiled
            yield line
        del weights


def _compile(
    task: Task, matrices: list[tuple[int, int]], device: torch.device, dtype: torch.dtype
) -> dict[str, object]:
    """Compile the kernels of all cases; return the seconds that took. What fails is compiled when it is measured."""
    begun = time.perf_counter()
    cases = [(rows, outputs, inputs) for inputs, outputs in matrices for rows in task.sizes.few_rows]
    try:
        compile_all(cases, dtype, device)
    except Exception as error:  # noqa: BLE001 - costs time alone
        return {
            "compile_s": time.perf_counter() - begun,
            "compile_error": f"{type(error).__name__}: {error}"[:200],
        }
    return {"compile_s": time.perf_counter() - begun}


def _measure_case(
    case: str, hidden: torch.Tensor, weights: list[torch.Tensor], rates: Ceilings | None, tried: list[Cut]
) -> Line:
    """Return the line of a weight and a number of rows; its time is that of what is served."""
    num_bytes = weights[0].nbytes
    torch_s = _seconds(linear, hidden, weights)
    line = Line(
        case,
        ms=1000 * torch_s,
        limit_ms=1000 * num_bytes / rates.bandwidth if rates else None,
        note=f"torch {_rate(torch_s, num_bytes)}",
        detail={"torch_s": torch_s},
    )
    if tried:
        _add_cuts(line, hidden, weights, torch_s, tried)
    return line


def _add_cuts(
    line: Line, hidden: torch.Tensor, weights: list[torch.Tensor], torch_s: float, tried: list[Cut]
) -> None:
    """Add to a line what each right way to cut takes. If one is served, the line fails without it, and has its time."""
    expected = linear(hidden.float(), weights[0].float())
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    for cut in tried:
        try:
            taken, error = _try(cut.product, hidden, weights, expected)
        except Exception as exception:  # noqa: BLE001 - one way's failure; the others are measured
            failures[cut.name] = f"{type(exception).__name__}: {str(exception)[:200]}"
            continue
        if error < MAX_ERROR:
            seconds[cut.name] = taken
        else:
            failures[cut.name] = f"differs from torch by {error:.2g}"
    line.detail |= {
        "cuts_s": dict(sorted(seconds.items(), key=lambda item: item[1])),
        "cuts_failed": failures,
    }
    if failures:
        line.note += f"; {len(failures)} of {len(tried)} cuts failed"
    num_bytes = weights[0].nbytes
    if seconds:
        best = min(seconds, key=lambda name: seconds[name])
        line.note += (
            f"; {torch_s / seconds[best]:.2f} times as fast: {best}, {_rate(seconds[best], num_bytes)}"
        )
    served = tried[0].name
    if is_served(len(hidden), *weights[0].shape):
        line.detail["served"] = served
        line.failed = served in failures
        line.note += f"; served: {failures.get(served) or _rate(seconds[served], num_bytes)}"
        if not line.failed:
            line.ms = 1000 * seconds[served]
            line.ratio = line.limit_ms / line.ms if line.limit_ms else None


def _try(
    product: Product, hidden: torch.Tensor, weights: list[torch.Tensor], expected: torch.Tensor
) -> tuple[float, float]:
    """Return what a product takes, and the largest error before and after it was timed."""
    before = _error(product, hidden, weights[0], expected)
    taken = _seconds(product, hidden, weights)
    return taken, max(before, _error(product, hidden, weights[0], expected))


def _error(product: Product, hidden: torch.Tensor, weight: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error of one output, relative to the root mean square of the outputs."""
    # The memory that the result will get holds an earlier one, which would hide an output that is not written.
    poisoned = torch.full_like(expected, torch.nan, dtype=hidden.dtype)
    del poisoned
    error = (product(hidden, weight).float() - expected).abs().max() / expected.square().mean().sqrt()
    return float(error.nan_to_num(torch.inf))


def _seconds(product: Product, hidden: torch.Tensor, weights: list[torch.Tensor]) -> float:
    """Return what one product takes, going through the weights in turn."""
    calls = [lambda weight=weight: product(hidden, weight) for weight in weights]
    if hidden.device.type != "cuda":
        return median_seconds(calls, hidden.device, CALLS)
    turns = itertools.cycle(calls)
    count = -(-CALLS // len(calls)) * len(calls)
    replay = _captured([next(turns) for _ in range(count)])
    return median_seconds([replay], hidden.device, REPLAYS) / count


def _captured(calls: list[Call]) -> Call:
    """Return the replay of a CUDA graph of these calls."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # Not by torch.cuda.graph, which empties the allocator's cache each time.
    with torch.cuda.stream(torch.cuda.Stream()):
        calls[0]()  # what a first call sets up cannot be captured
        torch.cuda.synchronize()
        graph.capture_begin()
        try:
            for call in calls:
                call()
        finally:
            graph.capture_end()
    torch.cuda.synchronize()
    return graph.replay


def _rate(seconds: float, num_bytes: int) -> str:
    return f"{1000 * seconds:.4f} ms ({num_bytes / seconds / 1e12:.2f} TB/s)"
