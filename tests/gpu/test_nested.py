"""Test files run in a pytest of their own, wherever pytest's own plugins are not installed."""

from __future__ import annotations

from pathlib import Path

from .nested import run_on_gpu


def test_nested_tests_run_by_the_gpu_settings() -> None:
    assert "1 passed" in run_on_gpu([Path(__file__).with_name("test_greedy.py")])
