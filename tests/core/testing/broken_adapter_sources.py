"""Adapter sources that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from llmfw.core import AdapterSource
from llmfw.core.testing import AdapterSourceTests
from llmfw.core.testing.adapter_sources import FILES, write_adapter


class Options(AdapterSource.Options, frozen=True):
    root: str = ""


class Broken(AdapterSource):
    """Finds folders by their exact names."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.root = Path(options.root).resolve()
        self.kept: list[str] = []

    def find(self, name: str) -> str | None:
        known = {each.name: each for each in self.root.iterdir() if _is_inside(each, self.root)}
        return str(known[name]) if name in known else None


class ReturnsTheWeights(Broken):
    def find(self, name: str) -> str | None:
        found = super().find(name)
        return None if found is None else f"{found}/{FILES[1]}"


class ReturnsRelativePaths(Broken):
    def find(self, name: str) -> str | None:
        return name if super().find(name) else None


class CopiesEachTime(Broken):
    def find(self, name: str) -> str | None:
        if (found := super().find(name)) is None:
            return None
        self.kept.append(name)
        copy = self.root.parent / f"copy-{len(self.kept)}"
        shutil.copytree(found, copy)
        return str(copy)


class RaisesForUnknownNames(Broken):
    def find(self, name: str) -> str | None:
        if (found := super().find(name)) is None:
            raise KeyError(name)
        return found


class LeavesTheRoot(Broken):
    def find(self, name: str) -> str | None:
        folder = self.root / name
        return str(folder.absolute()) if len(name) < 200 and folder.is_dir() else None


class TakesPartsOfPaths(Broken):
    def find(self, name: str) -> str | None:
        return super().find(name.rstrip("/.").rpartition("/")[2])


class IgnoresCase(Broken):
    def find(self, name: str) -> str | None:
        return super().find(name.lower())


class FollowsLinks(Broken):
    def find(self, name: str) -> str | None:
        known = {each.name: each for each in self.root.iterdir()}
        return str(known[name]) if name in known else None


class KeepsTheName(Broken):
    """Keeps the name in an attribute meanwhile, so that two threads mix up their names."""

    name = ""

    def find(self, name: str) -> str | None:
        self.name = name
        time.sleep(0.002)
        return super().find(self.name)


class KeepsUnknownNames(Broken):
    def find(self, name: str) -> str | None:
        if name.startswith("llmfw-no-such-"):
            self.kept.append(name)
            return None
        return super().find(name)


def _is_inside(folder: Path, root: Path) -> bool:
    return all((folder / file).is_file() and (folder / file).resolve().is_relative_to(root) for file in FILES)


class OfKind(AdapterSourceTests):
    kind: type[Broken]

    @pytest.fixture
    def source(self, tmp_path: Path) -> Broken:
        write_adapter(tmp_path / "root" / "sql")
        return self.kind(Options(root=str(tmp_path / "root")))

    @pytest.fixture
    def name(self) -> str:
        return "sql"

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "root")


def test_class(kind: type[Broken]) -> Any:
    """Return a test class for an adapter source."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (Broken, *Broken.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
