"""The pages on the architecture name files, rooms and shapes that are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/architecture.md", *sorted((ROOT / "docs/internals").glob("*.md"))]
SHAPES = ("Request", "SequenceState", "StepInput", "ForwardBatch", "StepOutput", "TokenEvent", "ContentDelta")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_named_file_exists(page: Path) -> None:
    names = set(re.findall(r"`((?:[\w./]+/)?\w+\.py)`", page.read_text("utf-8")))
    all_files = [
        str(path.relative_to(ROOT))
        for house in ("core", "api", "plugins", "tests", "docs")
        for path in (ROOT / house).rglob("*.py")
    ]
    missing = [name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in all_files)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_named_folder_exists(page: Path) -> None:
    names = set(re.findall(r"`((?:core|api|plugins|tests)(?:/\w+)+)`", page.read_text("utf-8")))
    assert not [name for name in names if not (ROOT / name).exists()]


def test_requests_have_the_page_s_types() -> None:
    text = PAGES[0].read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([\w/]+\.py)` \|$", text, re.MULTILINE)
    assert tuple(name for name, _ in rows) == SHAPES
    for name, path in rows:
        assert re.search(rf"^(class )?{name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), (name, path)


def test_executors_do_not_import_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only plain data crosses, so that a step can be computed in another process."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    rooms = importlib.import_module("house").graph("core")
    below = [room for room in rooms if room[:2] == ("core", "step")]
    assert below
    assert not [
        (room, target) for room in below for target in rooms[room] if target[:2] == ("core", "schedule")
    ]
