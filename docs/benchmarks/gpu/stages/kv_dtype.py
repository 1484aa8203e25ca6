"""Decoding over long contexts with keys and values stored in the model's dtype, and in fp8, half as large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from limits import step_limit
from lines import Line
from offline import Offline, Window, free_memory, full_steps
from stages.decode import window_line
from task import Task

STORED_AS = ("auto", "fp8_e4m3")


def measure(task: Task) -> Iterator[Line]:
    """Measure the same prompts with each dtype. The note says how much faster the other one is than the model's."""
    first = None
    for stored_as in STORED_AS:
        window = decode(task, stored_as)
        first = first or window
        yield _line(task, stored_as, window, first.median / window.median)


def decode(task: Task, stored_as: str) -> Window:
    """Return the figures of steps in which every sequence decodes."""
    sizes = task.sizes
    batch, prompt = sizes.long_contexts
    offline = Offline(task, task.attention, kv_cache_dtype=stored_as)
    offline.run(offline.prompts(batch, sizes.prompt), 6)
    full = full_steps(offline.run(offline.prompts(batch, prompt), sizes.window + 10), batch)
    if not full:
        raise RuntimeError(f"{batch} sequences never decoded together; the pool may be too small")
    del offline  # its memory is the next one's
    free_memory()
    return Window.of(full[-sizes.window :], batch, prompt)


def _line(task: Task, stored_as: str, window: Window, faster: float) -> Line:
    batch, _ = task.sizes.long_contexts
    shape = task.shape if stored_as == "auto" else replace(task.shape, kv_value_bytes=1)
    limit = task.ceilings and 1000 * step_limit(shape, task.ceilings, batch, window.context).seconds
    compared = "" if stored_as == "auto" else f", {faster:.2f} times as fast as in {task.sizes.dtype}"
    case = f"decode {batch}, context {window.context:.0f}, stored in {shape.kv_value_bytes} bytes"
    return window_line(case, batch, window, limit, compared)
