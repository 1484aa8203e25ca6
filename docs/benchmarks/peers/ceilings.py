"""What this machine can do: how fast it reads memory, and how fast it multiplies matrices.

Memory is read by a C program, where there is a compiler, and by a sum of torch's; the faster counts. Products are torch's,
of square matrices in float32 and in bfloat16. Each is the best of several tries, with all cores. Measured in a process
of its own, which is this file run as a script.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

SOURCE = Path(__file__).with_name("inside") / "read_memory.c"
CUBE = 2048
TRIES = 7
READ, RATES = "read_gb_s", ("f32_tflop_s", "bf16_tflop_s")


def measure(work: Path) -> dict[str, float]:
    """Return GB/s under "read_gb_s", and TFLOP/s under "f32_tflop_s" and "bf16_tflop_s".

    Args:
        work: folder for the compiled program.
    """
    # -P: the folder of this file holds modules that are named after packages.
    command = [sys.executable, "-P", __file__]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    program = compiled(work)
    if program is not None:
        found[READ] = max(found[READ], read_memory(program))
    return {name: round(value, 3) for name, value in found.items()}


def read_memory(program: Path) -> float:
    """Return GB/s, as the compiled program reads it. Takes a second."""
    environment = os.environ | {"OMP_NUM_THREADS": str(os.cpu_count())}
    shown = subprocess.run(program, capture_output=True, text=True, check=True, env=environment).stdout
    return round(float(shown) / 1e9, 3)


def compiled(work: Path) -> Path | None:
    """Return the program that reads memory, compiled if it is not there; None where it cannot be."""
    program = work / "read_memory"
    if program.exists() and program.stat().st_mtime >= SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    command = [compiler, "-O3", "-march=native", "-fopenmp", str(SOURCE), "-o", str(program)]
    return None if subprocess.run(command, capture_output=True, check=False).returncode else program


def by_torch() -> dict[str, float]:
    """Return what torch reaches in this process."""
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    numbers = torch.ones(1 << 28)
    found = {READ: numbers.nbytes / fastest(numbers.sum) / 1e9}
    for name, dtype in zip(RATES, (torch.float32, torch.bfloat16), strict=True):
        a, b = (torch.randn(CUBE, CUBE).to(dtype) for _ in range(2))
        found[name] = 2 * CUBE**3 / fastest(partial(torch.matmul, a, b)) / 1e12
    return found


def fastest(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several calls, after one that does not count."""
    call()
    seconds = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


if __name__ == "__main__":
    print(json.dumps(by_torch()))
