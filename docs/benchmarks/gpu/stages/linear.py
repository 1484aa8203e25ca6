"""Products of few rows with the weights of linear layers: torch's, and our kernel's, cut into programs in several ways.

Each weight has copies, together more than any cache of the GPU holds. On a GPU the time is that of replaying a CUDA
graph of several products, as launching one takes longer than computing it. On a CPU torch's products alone are measured.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator

import torch
from limits import Ceilings
from lines import Line, line_of_error
from task import Task
from timing import median_seconds
from torch.nn.functional import linear

CALLS = 12
REPLAYS = 4
MAX_DIFFERENCE = 0.02
"""Between the results of our kernel and torch's, relative to their norm."""

CUTS = (
    *((2, 1024, 4, 1), (4, 1024, 4, 1), (8, 1024, 4, 1), (16, 1024, 4, 1), (2, 2048, 4, 1), (4, 2048, 4, 1)),
    *((4, 2048, 8, 1), (8, 512, 2, 1), (4, 1024, 4, 3), (8, 1024, 4, 2), (2, 2048, 4, 3)),
)
"""What is tried: outputs of a program, inputs that it reads at once, warps, stages (1: not through shared memory)."""

Call = Callable[[], object]
Cut = tuple[int, int, int, int]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@torch.inference_mode()
def measure(task: Task) -> Iterator[Line]:
    """Measure each weight of the model with each number of rows."""
    sizes, shape = task.sizes, task.shape
    device, dtype = torch.device(sizes.device), getattr(torch, sizes.dtype)
    has_kernel = device.type == "cuda" and importlib.util.find_spec("triton") is not None
    compiled_in = _compile_all(sizes.few_rows, shape.hidden, dtype) if has_kernel else 0.0
    for num_inputs, num_outputs in [*shape.matrices, (shape.hidden, shape.vocab)]:
        count = max(1, -(-sizes.spread_bytes // (num_inputs * num_outputs * dtype.itemsize)))
        weights = [
            torch.randn(num_outputs, num_inputs, device=device, dtype=dtype) * 0.02 for _ in range(count)
        ]
        for rows in sizes.few_rows:
            case = f"{num_outputs} × {num_inputs}, {rows} rows"
            hidden = torch.randn(rows, num_inputs, device=device, dtype=dtype)
            try:
                line = _measure_case(case, hidden, weights, task.ceilings, has_kernel=has_kernel)
            except Exception as error:  # noqa: BLE001 - one case's line; the others are measured
                line = line_of_error(case, error)
            line.detail["compile_s"] = compiled_in
            yield line
        del weights


def _measure_case(
    case: str, hidden: torch.Tensor, weights: list[torch.Tensor], rates: Ceilings | None, *, has_kernel: bool
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
    if has_kernel:
        _add_kernel(line, hidden, weights, torch_s)
    return line


def _add_kernel(line: Line, hidden: torch.Tensor, weights: list[torch.Tensor], torch_s: float) -> None:
    """Add to a line what each way to cut takes. The time of the line becomes that of what would be served."""
    from llmfw.plugins.fused_triton.few_rows import MAX_ROWS, choose_cut

    num_outputs, num_inputs = weights[0].shape
    default = tuple(choose_cut(num_outputs, num_inputs))
    seconds = {cut: _seconds(_product(cut), hidden, weights) for cut in dict.fromkeys((default, *CUTS))}
    expected = linear(hidden, weights[0]).float()
    difference = (_product(default)(hidden, weights[0]).float() - expected).norm() / expected.norm()
    best = min(seconds, key=lambda cut: seconds[cut])
    num_bytes = weights[0].nbytes
    is_served = len(hidden) <= MAX_ROWS
    ours_s = seconds[default]
    if is_served:
        line.ms = 1000 * ours_s
        line.ratio = line.limit_ms / line.ms if line.limit_ms else None
    line.note = (
        f"{'ours' if is_served else 'not served: ours'} {_rate(ours_s, num_bytes)}, "
        f"{torch_s / ours_s:.2f} times as fast as torch's {_rate(torch_s, num_bytes)}; "
        f"best {_name(best)} {_rate(seconds[best], num_bytes)}"
    )
    if not float(difference) < MAX_DIFFERENCE:
        line.failed = True
        line.note = f"differs from torch by {float(difference):.2g}; {line.note}"
    line.detail |= {
        "default": _name(default),
        "difference": float(difference),
        "cuts_s": {_name(cut): taken for cut, taken in sorted(seconds.items(), key=lambda item: item[1])},
    }


def _product(cut: Cut) -> Product:
    from llmfw.plugins.fused_triton.few_rows import Cut as OurCut
    from llmfw.plugins.fused_triton.few_rows import linear_of_few_rows

    return lambda hidden, weight: linear_of_few_rows(hidden, weight, None, OurCut(*cut))


def _compile_all(few_rows: tuple[int, ...], num_inputs: int, dtype: torch.dtype) -> float:
    """Compile the kernels of all cuts; return the seconds that took."""
    begun = time.perf_counter()
    weight = torch.zeros(64, num_inputs, dtype=dtype, device="cuda")
    for rows, cut in itertools.product(few_rows, CUTS):
        _product(cut)(weight[:rows], weight)
    torch.cuda.synchronize()
    return time.perf_counter() - begun


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


def _name(cut: Cut) -> str:
    outputs, inputs, num_warps, stages = cut
    return f"{outputs} × {inputs}, {num_warps} warps, {stages} stages"
