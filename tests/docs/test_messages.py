"""A message that a page explains is one that the program can write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("serve_your_own_model.md", "troubleshooting.md")
COLUMN = re.compile(r"\bmessage$")
FOREIGN = {
    "Error no file named model.safetensors, or pytorch_model.bin",  # transformers
    "Error no file named model.safetensors",
    "requires accelerate",
    "No such file or directory:",  # safetensors
    "-00001-of-00003.safetensors",
    "No such option:",  # click
    "No such option",
}
"""Fragments of messages of libraries, which llmfw passes on."""


@cache
def texts() -> tuple[str, ...]:
    """Return the string constants of the program, and the pieces of those with values in them."""
    found: list[str] = []
    for room in ("api", "core", "plugins"):
        for path in sorted((ROOT / room).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            found += [
                node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
    return tuple(found)


def messages(page: str) -> Iterator[str]:
    """Yield what is in backticks in columns of tables that are headed "message"."""
    column = None
    for line in (ROOT / "docs" / page).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        headed = [index for index, cell in enumerate(cells) if COLUMN.search(cell) and "`" not in cell]
        column = headed[0] if headed else column if cells else None
        if column is not None and not headed and column < len(cells):
            yield from re.findall(r"`([^`]+)`", cells[column])


@pytest.mark.parametrize("page", PAGES)
def test_pages_quote_real_messages(page: str) -> None:
    """`…` stands for values: what is left is in the sources, or known to be a library's."""
    found = list(messages(page))
    assert len(found) > 15
    fragments = [part.strip() for message in found for part in message.split("…")]
    unknown = {part for part in fragments if len(part) > 2 and part not in FOREIGN}
    assert not {part for part in unknown if not any(part in text for text in texts())}
