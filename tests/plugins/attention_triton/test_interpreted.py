"""The kernels' values, in a process in which Triton interprets them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ...length import SELECTION, of_length

pytest.importorskip("triton")


@pytest.mark.slow
def test_the_kernels_pass_their_tests_in_the_interpreter() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).parent / "interpreted"),
        *SELECTION,
    ]
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [num_passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(num_passed) > of_length(40, 90), "not all was collected"
