"""Attention alone: each backend over so many sequences of equal length, layer after layer.

One call writes the new tokens' keys and values and attends. Layers have storage of their own, together more than any
cache of the GPU holds, as in a model. On a GPU the time is that of the kernels, without launching.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator

import numpy as np
import torch
from lines import Line, line_of_error
from task import Task
from timing import median_seconds, watch_kernels

from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

CALLS = 50
MOST_LAYERS = 512
LARGE = 100e6
"""Bytes of keys and values from which on a call is long enough to be held to the goals."""

DECODE_VARIANTS = {"flashinfer": {" without tensor cores": {"attention.decode_tensor_cores": "off"}}}
PROMPT_VARIANTS = {
    "flashinfer": {f" {kernels}": {"attention.prefill_backend": kernels} for kernels in ("fa2", "fa3")}
}
"""Options of backends that single tokens, and a prompt, are measured with, too."""


def measure(task: Task) -> Iterator[Line]:
    """Measure every backend that is installed and can serve the model's layers."""
    prompt = task.sizes.attention_prefill
    for entry in chosen_backends(task):
        if reason := reason_against(entry, layer_specs(task, 1), task):
            yield Line(f"attention {entry.name}", note=reason)
            continue
        for name, options in {"": {}, **DECODE_VARIANTS.get(entry.name, {})}.items():
            for batch, context in task.sizes.attention:
                yield from try_case(entry, task, name, options, batch, context, 1)
        for name, options in {"": {}, **PROMPT_VARIANTS.get(entry.name, {})}.items():
            yield from try_case(entry, task, name, options, 1, prompt, prompt)


def try_case(
    entry: Entry, task: Task, variant: str, options: dict[str, str], batch: int, context: int, new: int
) -> Iterator[Line]:
    """Yield the line of one case, whatever becomes of it."""
    case = f"attention {entry.name}{variant}, {batch} × {context}" + (", prompt" if new > 1 else "")
    if entry.name == "torch" and batch * context > task.sizes.reference_tokens:
        yield Line(case, note="left out: the reference gathers all keys and values anew")
        return
    try:
        yield measure_case(case, entry, options, task, batch, context, new)
    except Exception as error:  # noqa: BLE001 - one case's line; the others are measured
        yield line_of_error(case, error)
    gc.collect()


def chosen_backends(task: Task) -> list[Entry]:
    """Return the backends to look at: all that plugins bring, or the one that was named."""
    registry = load_plugins().registry
    named = task.attention != "auto"
    return [registry.find("attention", task.attention)] if named else registry.entries("attention")


def reason_against(entry: Entry, specs: list[LayerSpec], task: Task) -> str | None:
    """Return why a backend cannot be measured here, None if it can."""
    if missing := entry.missing():
        return f"not installed: {', '.join(missing)}"
    backend: type[AttentionBackend] = entry.load()
    return backend.unsupported(specs, task.sizes.device, getattr(torch, task.sizes.dtype))


def layer_specs(task: Task, count: int) -> list[LayerSpec]:
    """Return so many layers of the model's geometry."""
    shape = task.shape
    return [
        LayerSpec(
            index=index,
            num_heads=shape.heads,
            num_kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            v_head_dim=shape.head_dim,
            scale=shape.head_dim**-0.5,
        )
        for index in range(count)
    ]


def measure_case(
    case: str, entry: Entry, options: dict[str, str], task: Task, batch: int, context: int, new: int
) -> Line:
    """Return the line of a backend with `batch` sequences of `context` tokens, `new` of each being new."""
    device, dtype = torch.device(task.sizes.device), getattr(torch, task.sizes.dtype)
    num_bytes = batch * context * task.shape.kv_bytes // task.shape.layers
    count = min(MOST_LAYERS, max(2, -(-task.sizes.spread_bytes // num_bytes)))
    specs = layer_specs(task, count)
    storage = KVStorage(specs, batch * context, 1, dtype, device)
    for tensor in (*storage.keys, *storage.values):
        tensor.normal_()
    backend = entry.load()(specs, storage, entry.build_options(options))
    step = make_step(batch, context, new, device, is_static=new == 1 and backend.graph_unsupported() is None)
    query, key, value = (
        torch.randn(batch * new, heads, task.shape.head_dim, device=device, dtype=dtype)
        for heads in (task.shape.heads, task.shape.kv_heads, task.shape.kv_heads)
    )
    with torch.inference_mode():
        plans = [_seconds(lambda: backend.plan(step)) for _ in range(5)]
        calls = [lambda spec=spec: backend.forward(query, key, value, spec, step) for spec in specs]
        between = median_seconds(calls, device, CALLS)
        turns = itertools.cycle(calls)
        kernels = watch_kernels(lambda: [next(turns)() for _ in range(CALLS)], device)
    seconds = kernels.busy / CALLS if kernels else between
    return Line(
        case,
        ms=1000 * seconds,
        limit_ms=_limit_ms(task, num_bytes, new),
        goal=f"attention {entry.name}" if new == 1 and num_bytes >= LARGE else None,
        note=f"{1e6 * seconds:.1f} µs, {num_bytes / seconds / 1e12:.3f} TB/s; plan {1e6 * min(plans):.0f} µs",
        detail={"seconds": seconds, "between_events": between, "plan_s": plans, "kv_bytes": num_bytes}
        | ({"kernels_s": kernels.by_name} if kernels else {}),
    )


def make_step(batch: int, context: int, new: int, device: torch.device, *, is_static: bool) -> ForwardBatch:
    """Return a step of equal sequences whose tokens lie at random places."""
    places = np.random.default_rng(0).permutation(batch * context).reshape(batch, context)
    return ForwardBatch(
        positions=np.tile(np.arange(context - new, context), batch),
        slots=torch.from_numpy(places[:, context - new :].reshape(-1).copy()).to(device),
        query_lens=np.full(batch, new),
        kv_lens=np.full(batch, context),
        rows=torch.arange(batch, device=device),
        page_table=torch.from_numpy(places.astype(np.int32)).to(device),
        num_single=batch if new == 1 else 0,
        page_size=1,
        is_static=is_static,
    )


def _limit_ms(task: Task, num_bytes: int, new: int) -> float | None:
    rates = task.ceilings
    if rates is None:
        return None
    flops = 2 * task.shape.heads * task.shape.head_dim * new * (new + 1)
    return 1000 * max(num_bytes / rates.bandwidth, flops / rates.flops if new > 1 else 0.0)


def _seconds(call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
