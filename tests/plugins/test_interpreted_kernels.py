"""The values of all Triton kernels, in one process in which Triton interprets them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..length import LENGTH, SELECTION, of_length

pytest.importorskip("triton")

HERE = Path(__file__).parent
PATHS = (
    "attention_triton/interpreted",
    "attention_flashinfer/writes_by_kernel.py",
    "fused_triton/kernels_and_torch.py",
    "fused_triton/models_with_passes.py",
    "fused_triton/linear_and_torch.py",
    "fused_triton/tiles_and_torch.py",
    "sampling_triton/kernels_and_torch.py",
)
RUN_NO_KERNEL = (
    "known_modules or known_classes or second_pass or weights_keep or unusual_modules or float16_logits or "
    "except_the_first or last_layer or not_trusted"
)
LIKE_ANOTHER = "mistral or qwen2 or phi3 or gemma2 or e5m2"
"""Models and types that reach the same lines of a kernel as others do."""
WHOLE_ENGINES = "engine_s_tokens or reference_backend_s or alone_and_reordered"
"""Engines that use kernels whose values other tests check; the slowest tests."""


@pytest.mark.long  # 65 s of processor time
def test_kernels_pass_their_tests_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *SELECTION]
    left_out = RUN_NO_KERNEL if LENGTH == "full" else f"{RUN_NO_KERNEL} or {LIKE_ANOTHER} or {WHOLE_ENGINES}"
    command += ["-k", f"not ({left_out})"]
    command += [str(HERE / path) for path in PATHS]
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [num_passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(num_passed) > of_length(120, 200), "not all was collected"
