"""A component that no user chose is llmfw's own, whatever plugins are installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.plugin.defaults import default_name, name_of
from llmfw.core.plugin.registry import Entry, Registry

BUNDLED = Entry("policy", "lpm", "m:C", "policies", DISTRIBUTION, "1.0")
CLASH = replace(BUNDLED, plugin="clash", distribution="llmfw-clash")
OTHER = replace(CLASH, plugin="other")


@pytest.mark.parametrize(
    ("entries", "plugin", "name"),
    [
        ([BUNDLED], "", "lpm"),
        ([CLASH], "", "lpm"),
        ([CLASH, BUNDLED], "", "policies/lpm"),
        ([CLASH, BUNDLED], "clash", "clash/lpm"),
        ([CLASH, BUNDLED], "third", "policies/lpm"),
        ([CLASH, OTHER], "", "lpm"),
        ([], "", "lpm"),
    ],
)
def test_own_then_bundled_components_are_meant(entries: list[Entry], plugin: str, name: str) -> None:
    assert default_name(Registry(entries), "policy", "lpm", plugin) == name


def test_only_ambiguous_names_have_their_plugin() -> None:
    assert name_of(Registry([BUNDLED]), BUNDLED) == "lpm"
    assert name_of(Registry([BUNDLED, CLASH]), BUNDLED) == "policies/lpm"
