"""What a page imports from llmfw can be imported."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IMPORT = re.compile(r"from (llmfw(?:\.\w+)*) import ((?:\w+, )*\w+)")


def imports() -> Iterator[object]:
    """Yield page, module and name, for each name that a page imports."""
    for page in PAGES:
        for module, names in IMPORT.findall(page.read_text("utf-8")):
            for name in names.split(", "):
                yield pytest.param(module, name, id=f"{page.name}: {module}.{name}")


@pytest.mark.parametrize(("module", "name"), imports())
def test_what_a_page_imports_is_there(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name) or importlib.import_module(f"{module}.{name}")
