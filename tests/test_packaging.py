"""What is in the tree is in the sdist, and in the wheel that is made of it."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from llmfw.api.commands.scaffold.kinds import KINDS
from llmfw.api.commands.scaffold.package import PackageNames, write_package

from .package import build

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "plugins", "api")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LAUNCHER = "llmfw_engine.py"
"""A module of its own, beside the package."""
CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}


def tree(*folders: str) -> set[str]:
    """Return the files below these folders, without what tools leave behind."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(ROOT)) for path in paths if not CACHES.intersection(path.parts)}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sdist unpacks to."""
    out = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, out / "made")) as archive:
        archive.extractall(out, filter="data")
    return out / f"llmfw_engine-{PROJECT['version']}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel, made of the sdist, unpacks to."""
    out = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("wheel", sdist, out / "made")) as archive:
        archive.extractall(out / "unpacked")
    return out / "unpacked"


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
def test_the_sdist_contains_the_checkout(sdist):
    assert tree(*FOLDERS, "tests", "docs", ".ci") <= files_of(sdist)
    assert {"README.md", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml"} <= files_of(sdist)


def test_the_wheel_contains_only_the_package(wheel):
    inside = {name for name in files_of(wheel) if ".dist-info/" not in name}
    assert inside == {f"llmfw/{name}" for name in tree(*FOLDERS)} - {f"llmfw/api/{LAUNCHER}"} | {LAUNCHER}


def test_the_wheel_brings_types_weights_and_templates(wheel):
    assert {f"llmfw/{folder}/py.typed" for folder in FOLDERS} <= files_of(wheel)
    demo = wheel / "llmfw" / "plugins" / "model_demo"
    assert list(demo.rglob("*.safetensors"))
    assert list(demo.rglob("*.jinja"))
    assert list(demo.rglob("tokenizer.json"))


def test_the_wheel_registers_command_and_plugins(wheel):
    points = ConfigParser()
    points.read(next(wheel.glob("*.dist-info")) / "entry_points.txt")
    assert dict(points["console_scripts"]) == PROJECT["scripts"]
    assert dict(points["llmfw"]) == PROJECT["entry-points"]["llmfw"]


def test_the_scaffold_requires_this_package(wheel, tmp_path):
    write_package([KINDS["policy"]], PackageNames("quick"), tmp_path)
    asked = tomllib.loads((tmp_path / "llmfw-quick" / "pyproject.toml").read_text("utf-8"))["project"][
        "dependencies"
    ]
    requirement = Requirement(asked[0])
    about = PathDistribution(next(wheel.glob("*.dist-info")))
    assert requirement.name == about.name == "llmfw-engine"
    assert requirement.specifier.contains(about.version)


def test_plugins_are_imported_from_the_wheel(wheel, fresh_python: Callable[..., str]):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import llmfw.plugins.policies.lpm as lpm, llmfw.core as core; print(lpm.__file__, core.__file__)"
    )
    assert all(path.startswith(str(wheel)) for path in fresh_python(code).split())
