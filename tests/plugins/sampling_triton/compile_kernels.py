"""Compiles every sampling kernel for a GPU that is not there, and prints what each needs as lines of JSON.

Run by test_sampling_triton.py, in a process of its own, without TRITON_INTERPRET.
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

import torch
import triton
from triton.backends.compiler import GPUTarget

from llmfw.core.interfaces.token_sampler import RowNumbers
from llmfw.plugins.sampling_triton import ops

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
KERNELS = (
    "summarize_kernel",
    "points_kernel",
    "candidates_kernel",
    "finish_kernel",
    "unfiltered_kernel",
)
VOCAB_SIZES = (128_256, 50_257)
USAGE = re.compile(r"\b(REG|STACK|LOCAL):(\d+)")


class CompiledOnly:
    """A kernel whose launches compile it."""

    def __init__(self, kernel: Any, compiled: dict[str, Any]) -> None:
        self._kernel, self._compiled = kernel, compiled

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            found = self._kernel.run(*args, grid=grid, warmup=True, **kwargs)
            self._compiled[found.hash] = found

        return launch


def usage(compiled: Any) -> dict[str, Any]:
    """Return a kernel's name, registers, and bytes of stack, of local and of shared memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(CUOBJDUMP), "-res-usage", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in USAGE.findall(printed)}
    return {"kernel": compiled.name, "shared": compiled.metadata.shared} | found


def main(capability: int) -> None:
    """Compile all launches for compute capability `capability / 10`."""
    target = GPUTarget("cuda", capability, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
        )
    )
    compiled: dict[str, Any] = {}
    for name in KERNELS:
        setattr(ops, name, CompiledOnly(getattr(ops, name), compiled))
    for vocab_size in VOCAB_SIZES:
        logits = torch.zeros(2, vocab_size)
        column = torch.zeros(2, 1)
        numbers = RowNumbers(torch.zeros(2).double(), column, column.long(), column, column)
        ops.sample_all(logits, numbers)
        for has_top_k in (False, True):
            ops.sample_selected(logits, numbers, has_top_k)
    for kernel in compiled.values():
        print(json.dumps(usage(kernel)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
