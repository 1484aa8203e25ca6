"""The kernels compile for GPUs, and are right on one. `test_interpreted_kernels.py` runs them without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ...gpu.nested import run_on_gpu

HERE = Path(__file__).parent
MAX_SHARED = 99 * 1024
"""Bytes that a program may have on any GPU since sm_80."""
MAX_SHARED_90 = 227 * 1024

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


FILES = ("kernels_and_torch.py", "models_with_passes.py", "linear_and_torch.py", "tiles_and_torch.py")


@pytest.mark.slow
@pytest.mark.gpu
def test_gpu_results_equal_torch() -> None:
    assert re.search(r"\d+ passed", run_on_gpu([HERE / name for name in FILES]))


@pytest.mark.long
def test_every_kernel_compiles_for_gpus_without_spilling() -> None:
    usages = compiled_by("compile_kernels.py")
    assert len(usages) == 48
    for name, usage in usages.items():
        assert usage["STACK"] == usage["LOCAL"] == 0, (name, usage)
        assert usage["REG"] <= 128, (name, usage)
        assert usage["shared"] <= MAX_SHARED, (name, usage)
        if name.endswith("sm_80"):
            assert usage["early_loads"] is None, (name, usage)
        else:
            reads_weights = "rows times" in name or name.startswith("norm of")
            assert (usage["early_loads"] > 0) is reads_weights, (name, usage)
            assert usage["early_others"] == 0, (name, usage)


@pytest.mark.long
def test_tiles_compile_for_tensor_cores_without_spilling() -> None:
    for name, usage in compiled_by("compile_tiles.py").items():
        assert usage["STACK"] == usage["LOCAL"] == 0, (name, usage)
        assert usage["shared"] <= MAX_SHARED_90, (name, usage)
        if name.startswith("tiles"):
            assert usage["products"] > 0, (name, usage)
            assert usage["copies"] >= 2 * 2, (name, usage)  # of weights and inputs, in the loop and before it


def compiled_by(script: str) -> dict[str, dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(HERE / script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    usages: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return usages


def test_the_passes_need_cuda() -> None:
    from llmfw.plugins.fused_triton.norms import NormPass

    if os.environ.get("TRITON_INTERPRET", "0") == "0":
        assert NormPass.unsupported("cpu", torch.bfloat16) == "its kernels run on cuda"
    assert NormPass.unsupported("cuda:0", torch.float32) is None
