"""Notebooks as files of cells: `# %%` and a name begin one. Knows nothing of what the cells do."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

MARK = "# %% "


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        name: as the notebook has it: `In [3]`.
        line: of the file on which its source begins, from 1.
    """

    path: Path
    name: str
    line: int
    source: str

    def compile(self, changes: Mapping[str, str]) -> CodeType:
        """Return its code, with texts replaced; tracebacks show the file's own lines."""
        tree = ast.parse(self.changed(changes), str(self.path))
        ast.increment_lineno(tree, self.line - 1)
        return compile(tree, str(self.path), "exec")

    def changed(self, changes: Mapping[str, str]) -> str:
        """Return its source, with texts replaced."""
        source = self.source
        for old, new in changes.items():
            source = source.replace(old, new)
        return source


def read_cells(path: Path) -> Iterator[Cell]:
    """Yield the cells of a notebook, in its order."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        name = lines[start].removeprefix(MARK).strip()
        yield Cell(path, name, start + 2, "".join(lines[start + 1 : end]))


def run_cells(path: Path, changes: Mapping[str, str]) -> dict[str, Any]:
    """Run the cells of a notebook in one namespace, and return it.

    Args:
        changes: texts and what they are replaced by.

    Raises:
        Exception: what a cell raises, with a note of which cell it was.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in read_cells(path):
        try:
            exec(cell.compile(changes), namespace)  # noqa: S102 (a notebook's cell is run, that is all)
        except Exception as error:
            error.add_note(f"in cell {cell.name} of {path.name}")
            raise
    return namespace
