"""What tests on a GPU share: a kernel that was not compiled ahead skips its test, by its name."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip where FlashInfer, told not to compile, lacks a kernel."""
    try:
        return (yield)
    except Exception as error:
        if type(error).__name__ == "MissingJITCacheError":
            pytest.skip(f"not compiled ahead: {str(error).splitlines()[0]}")
        raise
