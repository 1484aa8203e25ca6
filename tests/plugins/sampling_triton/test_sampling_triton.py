"""The sampling kernels compile for GPUs. `test_interpreted_kernels.py` runs them without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

MAX_SHARED = 99 * 1024
"""Bytes that a program may have on any GPU since sm_80."""


@pytest.mark.long
@pytest.mark.parametrize("capability", [80, 90])
def test_every_kernel_compiles_without_spilling(capability: int, tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, str(Path(__file__).parent / "compile_kernels.py"), str(capability)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({kernel["kernel"] for kernel in kernels}) == 6
    assert [kernel for kernel in kernels if kernel["STACK"] or kernel["LOCAL"]] == []
    assert [kernel for kernel in kernels if kernel["shared"] > MAX_SHARED] == []
