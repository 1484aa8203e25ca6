"""Tests on a GPU skip, by its name, where a kernel was not compiled ahead; all other errors stay errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from types import SimpleNamespace

class MissingJITCacheError(RuntimeError):
    spec = SimpleNamespace(name="batch_decode")

def build():
    try:
        raise MissingJITCacheError("compiling is disabled")
    except MissingJITCacheError as error:
        raise ValueError("kernels cannot be loaded") from error

@pytest.fixture
def backend():
    build()

@pytest.fixture(scope="module")
def engine():
    raise ValueError("flashinfer: MissingJITCacheError: batch_decode")

def test_call(): build()
def test_setup(backend): pass
def test_module(engine): pass
def test_module_again(engine): pass
def test_other(): raise RuntimeError("another error")
def test_fine(): pass
"""


@pytest.mark.parametrize("name", ["call", "setup", "module", "module_again"])
def test_a_missing_kernel_skips_its_test(results: str, name: str) -> None:
    assert f"::test_{name} SKIPPED (not compiled ahead: batch_decode)" in results


def test_other_errors_fail_as_before(results: str) -> None:
    assert "::test_other FAILED" in results
    assert "1 failed, 1 passed, 4 skipped" in results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of tests that need a missing kernel at several places."""
    path = tmp_path_factory.mktemp("kernels") / "test_kernels.py"
    path.write_text(TESTS)
    options = ["-v", "-p", "tests.gpu.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    env = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", path.parent, path]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
