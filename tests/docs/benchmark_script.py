"""The modules of docs/benchmarks, which import each other by their bare names, as scripts do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


@contextmanager
def benchmark_script(*names: str) -> Iterator[list[ModuleType]]:
    """Give modules of the folder; they are forgotten afterwards, so that their names stay free."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(FOLDER))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
                del sys.modules[name]
