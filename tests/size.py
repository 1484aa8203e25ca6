"""Prints what has grown: the lines of each top-level folder, the largest files and the longest functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = 10


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files below these folders of the repository."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def num_lines(path: Path) -> int:
    """Return the number of physical lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the length in lines, from `def` to the last line, and the place of each function of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield length, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def main() -> None:
    """Print the report."""
    for folder in ("core", "plugins", "api", "tests"):
        files = list(sources(folder))
        print(f"{sum(map(num_lines, files)):6} lines in {len(files):3} files of {folder}/")
    ours = list(sources("core", "plugins", "api"))
    print("\nlargest files")
    for lines, name in sorted((num_lines(path), str(path.relative_to(ROOT))) for path in ours)[
        : -SHOWN - 1 : -1
    ]:
        print(f"{lines:6} {name}")
    print("\nlongest functions")
    for lines, name in sorted(found for path in ours for found in functions(path))[: -SHOWN - 1 : -1]:
        print(f"{lines:6} {name}")


if __name__ == "__main__":
    main()
