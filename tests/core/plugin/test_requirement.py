"""A package that was made for another llmfw is told apart from one that was made for this one."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from llmfw.core.plugin import requirement
from llmfw.core.plugin.requirement import is_plainly_met, reason_against


class Package(Distribution):
    """A package with these lines in its metadata."""

    def __init__(self, *lines: str) -> None:
        self.text = (
            "\n".join(["Metadata-Version: 2.1", "Name: ext", "Version: 1.2", *lines])
            + "\n\nRequires-Dist: llmfw-engine>=9\n"
        )

    def read_text(self, filename: str) -> str | None:
        return self.text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "name_and_version", lambda package: ("llmfw-engine", "0.4.0.dev2"))


@pytest.mark.parametrize(
    "line",
    [
        "llmfw-engine",
        "llmfw-engine>=0.3,<0.5",
        "llmfw_engine >=0.4",
        "llmfw-more>=9",
        "llmfw-engine-more>=9",
        "llmfw>=9",
        "llmfw-engine>=9; extra == 'new'",
    ],
)
def test_satisfied_requirements_load(line: str) -> None:
    assert reason_against(Package(f"Requires-Dist: {line}")) is None


@pytest.mark.parametrize(
    "line", ["llmfw-engine>=9", "LLMFW.Engine >= 0.5", "llmfw-engine[triton]~=0.3.1", "llmfw-engine<0.4"]
)
def test_an_unsatisfied_requirement_names_both_versions(line: str) -> None:
    reason = reason_against(Package("Requires-Dist: click", f"Requires-Dist: {line}"))
    assert reason is not None
    assert reason.endswith("and this is llmfw 0.4.0.dev2")


def test_an_invalid_requirement_is_reported() -> None:
    reason = reason_against(Package("Requires-Dist: llmfw-engine>=>=5"))
    assert reason == "its requirement 'llmfw-engine>=>=5' is not valid"


RELEASES = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)
BOUNDS = st.lists(st.tuples(st.sampled_from(["<", "<=", ">", ">="]), RELEASES), min_size=1, max_size=3)


@given(BOUNDS, RELEASES)
def test_plain_bounds_agree_with_packaging(bounds: list[tuple[str, str]], version: str) -> None:
    text = ",".join(sign + bound for sign, bound in bounds)
    assert is_plainly_met(f"llmfw-engine{text}", version) == SpecifierSet(text).contains(version)


@pytest.mark.parametrize(
    "requirement",
    [
        "llmfw-engine~=0.1",
        "llmfw-engine==0.1.*",
        "llmfw-engine>=0.1; extra == 'x'",
        "llmfw-engine>=0.1a1",
        "llmfw-engine[x]>=0.1",
        "llmfw-engine-x>=0.1",
    ],
)
def test_complex_requirements_are_left_to_packaging(requirement: str) -> None:
    assert not is_plainly_met(requirement, "0.1.0")


def test_scaffolded_packages_do_not_need_packaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "name_and_version", lambda package: ("llmfw-engine", "0.4.0"))
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)  # whose import would raise
    lines = ("Requires-Dist: llmfw-engine<99,>=0", "Requires-Dist: llmfw-engine[testing]; extra == 'test'")
    assert reason_against(Package(*lines)) is None
