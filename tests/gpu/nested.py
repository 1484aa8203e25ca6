"""Runs test files in a pytest of their own, whose kernels run on the GPU: other tests of this process interpret them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..length import SELECTION

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "docs" / "benchmarks" / "gpu" / "pytest.ini"
"""Those of pyproject.toml need plugins of pytest that a GPU's machine may lack."""


def run_on_gpu(files: Sequence[Path]) -> str:
    """Run test files, and return what pytest printed.

    Raises:
        AssertionError: a test failed, or none was run.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark", *SELECTION]
    command += ["-c", str(SETTINGS), "--rootdir", str(ROOT), "--import-mode=importlib", *map(str, files)]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout
