"""The modules of docs/benchmarks, which import each other by their bare names, as scripts do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
MACHINE = {
    "date": "2026-01-01",
    "commit": "abc",
    "cpu": "Z80",
    "cores": 1,
    "memory_gib": 0.1,
    "python": "3.11",
}
"""One, as the results of a benchmark describe it."""


@contextmanager
def benchmark_script(*names: str, folder: Path = FOLDER) -> Iterator[list[ModuleType]]:
    """Give modules of a folder; they are forgotten afterwards, so that their names stay free."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
                del sys.modules[name]
