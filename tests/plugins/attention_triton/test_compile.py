"""The kernels, compiled for devices that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ...length import of_length

pytest.importorskip("triton")

FIRST_ONLY = 1_000
"""A step that is longer than the list of cases."""
OVERLAPPED = ("write_kernel", "attend_kernel", "join_kernel")
"""Kernels that are launched before those ahead of them have ended, where the device can."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "shared_kib", "step"), of_length([(90, 227, FIRST_ONLY)], [(80, 163, 2), (90, 227, 1)])
)
def test_every_kernel_compiles_within_hardware_limits(
    capability: int, shared_kib: int, step: int, tmp_path: Path
) -> None:
    env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    env.pop("TRITON_INTERPRET", None)
    command = [
        sys.executable,
        str(Path(__file__).parent / "compile_kernels.py"),
        *map(str, (capability, step)),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert {kernel["kernel"] for kernel in kernels} == {
        "write_kernel",
        "schedule_kernel",
        "attend_kernel",
        "join_kernel",
        "prefill_kernel",
    }
    assert [kernel for kernel in kernels if kernel["stack"] or kernel["local"]] == []
    assert [kernel for kernel in kernels if kernel["shared"] > shared_kib * 1024] == []
    for kernel in kernels:
        waits = capability >= 90 and kernel["kernel"] in OVERLAPPED
        assert kernel["early"] == (0 if waits else None), kernel
