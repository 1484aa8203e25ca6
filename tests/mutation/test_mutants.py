"""The mutants of a module are valid code, each with one change."""

from __future__ import annotations

import pytest

from .mutants import mutants
from .targets import ROOT, TARGETS

SOURCE = '''"""A docstring of 1 module."""
import logging
logger = logging.getLogger(__name__)


class Sizes:
    conformance: ClassVar = {"sizes": [1, 2]}


def smaller(a: int, b: int = 2) -> int:
    """Return the smaller one."""
    logger.info("comparing %d", 3)
    if a < b and not b == 0:
        return a
    raise ValueError(f"{b + 1} is too small")
'''


def test_each_mutant_changes_one_thing() -> None:
    found = list(mutants(SOURCE))
    assert [each.change for each in found] == [
        "if a < b and (not b == 0):;     return a -> if not (a < b and (not b == 0)):;     return a",
        "a < b and (not b == 0) -> a < b or not b == 0",
        "a < b -> a <= b",
        "not b == 0 -> b == 0",
        "b == 0 -> b != 0",
        "0 -> 1",
        "return a -> return None",
    ]
    assert len({each.source for each in found}) == len(found)


@pytest.mark.parametrize("every", [32, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("package", TARGETS)
def test_all_mutants_compile(package: str, every: int) -> None:
    files = TARGETS[package].files(package)
    assert files
    for path in files:
        for mutant in mutants(path.read_text("utf-8"), every=every):
            compile(mutant.source, str(path), "exec")


@pytest.mark.parametrize("package", TARGETS)
def test_all_named_tests_exist(package: str) -> None:
    target = TARGETS[package]
    assert set(target.kits) <= {path.stem for path in target.files(package)}
    single = (test for tests in target.kits.values() for test in tests)
    for named in (*target.kit, *target.own, *single):
        path, _, name = named.partition("::")
        found = ROOT / "tests" / "plugins" / path
        assert found.exists()
        assert not name or f"class {name}(" in found.read_text("utf-8")
