"""What the tests take for FlashInfer's arguments are those of the version that the extra installs."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from .signatures import RECORD, installed

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def flashinfer() -> None:
    """Skip where FlashInfer, or what it binds by, is not installed."""
    for module in ("tvm_ffi", "pynvml", "flashinfer"):
        pytest.importorskip(
            module, reason=f"{module} is not installed: the recorded arguments stay unchecked"
        )


@pytest.mark.usefixtures("flashinfer")
@pytest.mark.filterwarnings("ignore")
def test_recorded_signatures_equal_the_installed_package_s() -> None:
    assert json.loads(RECORD.read_text()) == {
        name: list(map(list, parameters)) for name, parameters in installed().items()
    }


def test_the_extra_pins_the_tested_version() -> None:
    try:
        found = version("flashinfer-python")
    except PackageNotFoundError:
        pytest.skip("flashinfer-python is not installed")
    assert PROJECT["optional-dependencies"]["flashinfer"] == [f"flashinfer-python=={found}"]
