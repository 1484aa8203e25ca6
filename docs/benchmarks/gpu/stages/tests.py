"""The tests that need a GPU: `pytest -m gpu`. One line, which failed if any test did."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from lines import Line
from task import ROOT, Task


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
    command += ["-c", str(ROOT / "docs/benchmarks/gpu/pytest.ini"), "--rootdir", str(ROOT)]
    command += ["--confcutdir", str(ROOT), "-p", "no:cacheprovider", str(ROOT / "tests" / "gpu")]
    lines = ["no output"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
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
