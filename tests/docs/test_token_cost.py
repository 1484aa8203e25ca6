"""The script that says what a token costs beside the native step finds that step in the engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from llmfw.plugins.cpu_native.library import load_library, why_not

from .benchmark_script import FOLDER, benchmark_script

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))


def test_the_script_times_the_native_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load_library(torch.bfloat16)
    monkeypatch.setitem(vars(library), "llmfw_run_model", library.llmfw_run_model)  # what the script replaces
    num_threads = torch.get_num_threads()
    try:
        with benchmark_script("token_cost") as [script]:
            found = script.engine_alone(1, 6)
    finally:
        torch.set_num_threads(num_threads)
    assert 0 < found["beside"] < found["step"]
    assert found["nothing"] > 0


@pytest.mark.long
def test_the_overhead_is_below_the_native_step() -> None:
    command = [sys.executable, FOLDER / "token_cost.py", "--alone", "1", "12"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert 0 < found["beside"] < found["step"]
    assert found["nothing"] > 0
