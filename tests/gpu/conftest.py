"""What tests on a GPU share: a kernel that was not compiled ahead skips its test, by its name."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ..docs.gpu_script import gpu_script

with gpu_script("missing_kernel") as (module,):
    missing_kernel = module.missing_kernel


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip where a fixture needs a kernel that FlashInfer, told not to compile, lacks."""
    return (yield from skip_without_kernel())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip where a test does."""
    return (yield from skip_without_kernel())


def skip_without_kernel() -> Generator[None, Any, Any]:
    """Run what is wrapped; make of its error a skipped test, if it is a missing kernel."""
    try:
        return (yield)
    except Exception as error:
        if kernel := missing_kernel(error):
            pytest.skip(f"not compiled ahead: {kernel}")
        raise
