"""An error about an unknown name suggests the nearest known one."""

from __future__ import annotations

from llmfw.core.base.suggestion import did_you_mean, nearest


def test_a_similar_name_is_suggested() -> None:
    assert nearest("lpn", {"fcfs", "lpm"}) == "lpm"
    assert did_you_mean("lpn", iter(["fcfs", "lpm"])) == ". Did you mean 'lpm'?"


def test_dissimilar_names_are_not_suggested() -> None:
    assert nearest("radix", ["fcfs", "lpm"]) is None
    assert did_you_mean("radix", []) == ""
