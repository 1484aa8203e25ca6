"""Compiles every kernel for a device that is not there, as the launchers ask for it: `compile_kernels.py CAPABILITY [STEP]`.

A stand-in for Triton's driver says what the device is, and launches become compilations. So signatures, constants and
what Triton assumes of pointers and numbers are those of a real launch. Prints a JSON object for each kernel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget

from llmfw.core.interfaces.kv_dtype import as_bytes
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.kernels import kv_kernel
from llmfw.plugins.attention_triton import decode, prefill, schedule
from llmfw.plugins.attention_triton.backend import reads_bytes

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@\S+ )?([A-Z0-9]+)", re.MULTILINE)
WAITS = "ACQBULK"
NEVER_BEFORE = ("LDG", "LDGSTS", "STG", "BRA", "EXIT")
"""Instructions: the wait for earlier kernels, and what may not come before it."""

KERNELS = (
    (kv_kernel, "write_kernel"),
    (schedule, "schedule_kernel"),
    (decode, "attend_kernel"),
    (decode, "join_kernel"),
    (prefill, "prefill_kernel"),
)

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PLAIN: dict[str, Any] = {"head_dim": 128, "v_head_dim": 128, "num_heads": 32, "num_kv_heads": 8}
SMALL: dict[str, Any] = {"head_dim": 64, "v_head_dim": 64}
CAPPED: dict[str, Any] = {"sliding_window": 4096, "softcap": 50.0}
SINKS: dict[str, Any] = {"has_sinks": True}
CASES: list[
    tuple[dict[str, Any], torch.dtype, int] | tuple[dict[str, Any], torch.dtype, int, torch.dtype]
] = [
    ({}, BF16, 1),
    ({}, BF16, 16),
    (SMALL, BF16, 1),
    (SMALL, FP16, 16),
    (CAPPED, FP16, 16),
    (CAPPED | SMALL, BF16, 16),
    (SINKS | {"sliding_window": 128}, BF16, 16),
    (SINKS | SMALL | {"sliding_window": 128}, BF16, 1),
    (SINKS, FP16, 1),
    ({"num_heads": 8}, BF16, 1),
    ({"head_dim": 96, "v_head_dim": 96}, BF16, 1),
    ({"head_dim": 192}, BF16, 1),
    ({"head_dim": 256, "v_head_dim": 256} | CAPPED, BF16, 1),
    (SMALL, FP32, 1),
    ({}, FP32, 16),
    ({}, BF16, 1, E4M3),
    ({}, BF16, 16, E5M2),
    ({}, FP16, 16, E4M3),
    (SMALL, BF16, 1, E4M3),
    (CAPPED, BF16, 16, E4M3),
    (SINKS | SMALL | {"sliding_window": 128}, BF16, 1, E4M3),
    ({"head_dim": 192}, BF16, 1, E4M3),
    ({"head_dim": 256, "v_head_dim": 256} | CAPPED, BF16, 1, E4M3),
    ({}, FP32, 16, E4M3),
    ({}, FP32, 16, BF16),
    ({}, BF16, 1, FP16),
]
"""What is compiled: a layer's values other than PLAIN's, the dtype, the page size, and the storage's dtype if another."""


def launch_all(
    layer: LayerSpec, dtype: torch.dtype, page_size: int, capability: int, stored_as: torch.dtype
) -> None:
    """Call each launcher as the backend does, for two decoding sequences and two prompts."""
    num_sequences, num_tokens = 4, 12
    key = torch.empty((num_tokens, layer.num_kv_heads, layer.head_dim), dtype=dtype)
    value = torch.empty((num_tokens, layer.num_kv_heads, layer.v_head_dim), dtype=dtype)
    query = torch.empty((num_tokens, layer.num_heads, layer.head_dim), dtype=dtype)
    output = torch.empty((num_tokens, layer.num_heads, layer.v_head_dim), dtype=dtype)
    keys = torch.empty((16 // page_size, page_size, *key.shape[1:]), dtype=stored_as)
    values = torch.empty((16 // page_size, page_size, *value.shape[1:]), dtype=stored_as)
    sinks = torch.empty(layer.num_heads, dtype=dtype) if layer.has_sinks else None
    page_table = torch.empty((8, 4096), dtype=torch.int32)
    rows = torch.empty(num_sequences, dtype=torch.int64)
    kv_kernel.write(key, value, keys, values, torch.empty(num_tokens, dtype=torch.int64), (0.5, 0.5))
    if reads_bytes(stored_as, divmod(capability, 10)):
        keys, values = as_bytes(keys), as_bytes(values)
    made = schedule.Schedule.empty(2, 66, torch.device("cpu"))
    lengths = torch.empty(num_sequences, dtype=torch.int32)
    schedule.schedule(lengths[:2], layer.sliding_window, made)
    partials = decode.Partials.empty(
        2, layer.num_heads, layer.num_heads * layer.v_head_dim, torch.device("cpu")
    )
    decode.decode(query[:2], keys, values, page_table, rows, made, partials, layer, sinks, output[:2])
    blocks = torch.from_numpy(np.zeros((2, 2), dtype=np.int32))
    spans = prefill.Spans(lengths, lengths, lengths)
    tiles = prefill.Tiles.of(layer, dtype, capability // 10)
    prefill.prefill(query, keys, values, page_table, rows, spans, blocks, layer, tiles, sinks, output)


class CompiledOnly:
    """A kernel whose launches compile it, and are kept."""

    def __init__(self, kernel: Any, compiled: dict[str, Any]) -> None:
        self._kernel, self._compiled = kernel, compiled

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            found = self._kernel.run(*args, grid=grid, warmup=True, **kwargs)
            self._compiled[found.hash] = found

        return launch


def usage(cubin: bytes) -> dict[str, int | None]:
    """Return a kernel's registers, its bytes of stack and of local memory, and the number of instructions before its
    wait for earlier kernels that may not be there; None if it does not wait."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(CUOBJDUMP), "-res-usage", "-sass", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    [found] = USAGE.findall(printed)
    registers, stack, local = map(int, found)
    names = INSTRUCTION.findall(printed)
    early = sum(name in NEVER_BEFORE for name in names[: names.index(WAITS)]) if WAITS in names else None
    return {"registers": registers, "stack": stack, "local": local, "early": early}


def main(capability: int, step: int = 1) -> None:
    """Compile every `step`th case for compute capability `capability / 10`, and print what came out."""
    target = GPUTarget("cuda", capability, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
        )
    )
    compiled: dict[str, Any] = {}
    for module, name in KERNELS:
        setattr(module, name, CompiledOnly(getattr(module, name), compiled))
    for module in (kv_kernel, decode):
        module.launches_early = lambda device: capability >= 90
    told = set()
    for changes, dtype, page_size, *stored in CASES[::step]:
        stored_as = stored[0] if stored else dtype
        launch_all(
            LayerSpec(index=0, scale=0.1, **(PLAIN | changes)), dtype, page_size, capability, stored_as
        )
        for key, kernel in compiled.items():
            if key not in told:
                told.add(key)
                case = f"{changes}, {dtype}, pages of {page_size} in {stored_as}"
                found = {"kernel": kernel.name, "case": case, "shared": kernel.metadata.shared}
                print(json.dumps(found | usage(kernel.asm["cubin"])), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
