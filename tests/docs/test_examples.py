"""The packages of docs/examples are what a stranger could have written. Their own tests are run by `make examples`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted(path.parent for path in DOCS.glob("examples/*/pyproject.toml"))


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_import_only_core(example: Path) -> None:
    found = {module for path in example.rglob("*.py") for module in imported(path)}
    ours = {module for module in found if module.partition(".")[0] == "llmfw"}
    assert ours
    assert all(module.split(".")[1] == "core" and "engine" not in module for module in ours)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_complete_plugin(example: Path) -> None:
    """It has a readme and tests, and its page links to it."""
    project = tomllib.loads((example / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == example.name
    assert list(project["entry-points"]) == ["llmfw"]
    assert any(need.startswith("llmfw-engine>=") and "<" in need for need in project["dependencies"])
    assert list(example.glob("tests/test_*.py"))
    assert f"(examples/{example.name}/README.md)" in (DOCS / "examples.md").read_text("utf-8")
