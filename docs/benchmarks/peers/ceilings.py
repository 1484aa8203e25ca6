"""What this machine can do: how fast it reads memory, and how fast it multiplies matrices.

Memory is read by a C program, where there is a compiler, and by a sum of torch's; the faster counts. Products are torch's,
of square matrices in float32 and in bfloat16. Each is the best of several tries, with all cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from . import programs

READ, RATES = "read_gb_s", ("f32_tflop_s", "bf16_tflop_s")


def measure(work: Path) -> dict[str, float]:
    """Return GB/s under "read_gb_s", and TFLOP/s under "f32_tflop_s" and "bf16_tflop_s".

    Args:
        work: folder for the compiled program.
    """
    command = [sys.executable, "-P", str(programs.INSIDE / "torch_rates.py")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    program = programs.compiled("read_memory", work)
    if program is not None:
        found[READ] = max(found[READ], programs.read_memory(program))
    return {name: round(value, 3) for name, value in found.items()}
