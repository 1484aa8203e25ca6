"""Without a server: decoding, sampling and prompts, all on one engine.

Decoding is measured for each batch size in one run of equal requests that arrive together: steps near the beginning and
near the end, and the whole run. A shorter run under the profiler shows what the GPU did.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from limits import GOALS, MOST_IDLE_MS, step_limit, workload_seconds
from lines import Line
from offline import Offline, Step, Window, full_steps
from stages.prefill import prefill_lines
from stages.sampling import sampling_lines
from task import Task
from timing import watch_kernels

SETTLED = 5
"""Steps of all sequences before those that are watched."""


def measure(task: Task) -> Iterator[Line]:
    """Measure all batch sizes, then sampling, then prompts."""
    offline = Offline(task, task.attention)
    warm_up(offline, task)
    for batch in task.sizes.batches:
        yield from decode_lines(offline, task, batch, task.sizes.output)
    yield from sampling_lines(offline, task)
    yield from prefill_lines(offline, task)


def warm_up(offline: Offline, task: Task) -> None:
    """Run what first steps bring with them: kernels are compiled, graphs captured."""
    for batch in dict.fromkeys(task.sizes.batches):
        offline.run(offline.prompts(batch, task.sizes.prompt), 6)


def decode_lines(offline: Offline, task: Task, batch: int, output: int, prefix: str = "") -> Iterator[Line]:
    """Yield the lines of one batch size.

    Args:
        prefix: of the cases' names.
    """
    sizes, rates = task.sizes, task.ceilings
    shared = offline.tokens(sizes.shared)
    steps = offline.run(offline.prompts(batch, sizes.prompt, shared), output)
    full = full_steps(steps, batch)
    if not full:
        raise RuntimeError(f"{batch} sequences never decoded together; the pool may be too small")
    for some in (full[: sizes.window], full[-sizes.window :]):
        window = Window.of(some, batch, sizes.prompt)
        limit = rates and 1000 * step_limit(task.shape, rates, batch, window.context).seconds
        yield window_line(f"{prefix}decode {batch}, context {window.context:.0f}", batch, window, limit)
    yield _whole(task, offline, steps, batch, output, prefix)
    yield _idle(task, offline, batch, full_steps(steps, batch, SETTLED), prefix)


def window_line(case: str, batch: int, window: Window, limit_ms: float | None, note: str = "") -> Line:
    """Return the line of steps of `batch` sequences; `note` follows the spread of their times."""
    return Line(
        case,
        tok_s=batch / window.median,
        ms=1000 * window.median,
        limit_ms=limit_ms,
        note=f"a step; {1000 * window.fastest:.3f} to {1000 * window.slowest:.3f} ms{note}",
    )


def _whole(task: Task, offline: Offline, steps: list[Step], batch: int, output: int, prefix: str) -> Line:
    sizes, rates = task.sizes, task.ceilings
    seconds = sum(step.seconds for step in steps)
    least = rates and workload_seconds(task.shape, rates, batch, sizes.prompt, output, sizes.shared)
    tok_s = batch * output / seconds
    return Line(
        f"{prefix}decode {batch}, whole run",
        tok_s=tok_s,
        ms=1000 * seconds,
        limit_ms=1000 * least if least else None,
        goal=f"decode {batch}" if f"decode {batch}" in GOALS else None,
        note=f"{sizes.prompt} in, {output} out, {offline.attention}, {len(steps)} steps",
        detail={"batch": batch, "tok_s": tok_s, "step_ms": [round(1000 * step.seconds, 4) for step in steps]},
    )


def _idle(task: Task, offline: Offline, batch: int, steps: Sequence[Step], prefix: str) -> Line:
    """Return how long the GPU does nothing between two steps, and what its kernels leave of a step.

    Args:
        steps: of other requests, which the profiler did not slow down; those at the same places are compared.
    """
    count = task.sizes.profiled
    ids = offline.start(offline.prompts(batch, task.sizes.prompt), SETTLED + 2 * count + 30)
    offline.step_together(batch, SETTLED)
    times = offline.watch_steps(lambda: offline.step_together(batch, count))
    kernels = watch_kernels(lambda: offline.step_together(batch, count), offline.device)
    offline.end(ids)
    case = f"{prefix}decode {batch}, GPU idle between steps"
    if task.sizes.device != "cuda":
        case = f"{prefix}decode {batch}, from step to step"
    idle = statistics.median(time.idle_ms for time in times)
    note, detail = (
        "",
        {"idle_ms": [time.idle_ms for time in times], "busy_ms": [time.busy_ms for time in times]},
    )
    if kernels is not None:
        median = statistics.median(step.seconds for step in steps[count : 2 * count])
        note = f"by the profiler {kernels.count / count:.0f} kernels take {1000 * kernels.busy / count:.3f} "
        note += f"of {1000 * median:.3f} ms"
        detail |= {"kernels_s": kernels.by_name, "kernels_busy_s": kernels.busy, "steps": count}
        detail["excerpt"] = kernels.excerpt
    elif task.sizes.device == "cuda":
        note = "the profiler saw no kernels"
    return Line(case, ms=idle, most_ms=MOST_IDLE_MS, note=note, detail=detail)
