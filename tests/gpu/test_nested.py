"""Test files run in a pytest of their own, wherever pytest's own plugins are not installed."""

from __future__ import annotations

from pathlib import Path

from .nested import run_on_gpu


def test_nested_tests_run_by_the_gpu_settings() -> None:
    file = Path(__file__).parents[1] / "test_processor_time.py"  # whatever imports no torch
    assert "3 passed" in run_on_gpu([file])
