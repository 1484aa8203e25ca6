"""Programs in C that measure the machine: how fast all its cores read memory, and how far two of them are from each other.

A virtual machine's cores are threads that its host moves. On CPUs made of chiplets that changes both: two cores on one
chiplet share its caches and its way to memory, two on different ones have two ways, and are further from each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

INSIDE = Path(__file__).with_name("inside")
NEAR_NS = 100.0
"""Two cores of one chiplet reach each other in less."""


def read_memory(program: Path) -> float:
    """Return GB/s, as the compiled `read_memory` reads. Takes a second."""
    return round(_run(program) / 1e9, 3)


def core_distance(program: Path) -> float:
    """Return the nanoseconds in which one of two threads sees what the other wrote, by the compiled `core_distance`."""
    return round(_run(program) * 1e9, 1)


def compiled(name: str, work: Path) -> Path | None:
    """Return a program, compiled into a folder if it is not there; None where it cannot be."""
    source, program = INSIDE / f"{name}.c", work / name
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    command = [compiler, "-O3", "-march=native", "-fopenmp", str(source), "-o", str(program)]
    return None if subprocess.run(command, capture_output=True, check=False).returncode else program


def _run(program: Path) -> float:
    environment = os.environ | {"OMP_NUM_THREADS": str(os.cpu_count())}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)
