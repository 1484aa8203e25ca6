"""The tests that need a GPU: `pytest -m gpu`. One line, which failed if any test did."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lines import Line
from task import ROOT, Task

PROCESSES = 14
"""Most processes at once: each takes a few GiB of the GPU's memory."""


def measure(task: Task) -> Iterator[Line]:
    """Run the tests. The settings are given here, as those of pyproject.toml need plugins of pytest."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-ra",
        "--import-mode=importlib",
        "--tb=short",
        "-q",
    ]
    if importlib.util.find_spec("xdist"):
        command += ["-n", str(min(PROCESSES, os.cpu_count() or 1))]
    command += ["-c", str(ROOT / "docs/benchmarks/gpu/pytest.ini"), "--rootdir", str(ROOT)]
    command += ["--confcutdir", str(ROOT), "-p", "no:cacheprovider", *map(str, files_with_tests())]
    lines = ["no output"]
    # Compiling kernels takes more processor time than a test of the short length may take.
    env = os.environ | {"LLMFW_TEST_LENGTH": "full"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)  # the log has it even if the time runs out
            lines += [line.strip("= \n")] if line.strip() else []
    last = lines[-1]
    counts = {
        what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)
    }
    yield Line(
        "pytest -m gpu",
        note=last if counts else f"ended with {process.returncode}: {last}",
        failed=process.returncode != 0,
        detail=counts,
    )


def files_with_tests() -> list[Path]:
    """Return the files that hold tests for a GPU; pytest would import all others, too, to find out that they do not."""
    return [
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "pytest.mark.gpu" in path.read_text()
    ]
