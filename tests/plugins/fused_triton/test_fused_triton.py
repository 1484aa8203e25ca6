"""The kernels compile for GPUs, and are right on one. `test_interpreted_kernels.py` runs them without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ...length import SELECTION

HERE = Path(__file__).parent
MAX_SHARED = 99 * 1024
"""Bytes that a program may have on any GPU since sm_80."""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


FILES = ("kernels_and_torch.py", "models_with_passes.py", "linear_and_torch.py")


@pytest.mark.slow
@pytest.mark.gpu
def test_gpu_results_equal_torch() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark", *SELECTION]
    command += [str(HERE / name) for name in FILES]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.long
def test_every_kernel_compiles_for_gpus_without_spilling() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(HERE / "compile_kernels.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    usages = json.loads(done.stdout)
    assert len(usages) == 76
    for name, usage in usages.items():
        assert usage["STACK"] == usage["LOCAL"] == 0, (name, usage)
        assert usage["REG"] <= 128, (name, usage)
        assert usage["shared"] <= MAX_SHARED, (name, usage)


def test_the_passes_need_cuda() -> None:
    from llmfw.plugins.fused_triton.norms import NormPass

    if os.environ.get("TRITON_INTERPRET", "0") == "0":
        assert NormPass.unsupported("cpu", torch.bfloat16) == "its kernels run on cuda"
    assert NormPass.unsupported("cuda:0", torch.float32) is None
