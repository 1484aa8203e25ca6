"""The bundled eviction rules keep the promises of their interface, and are found by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from llmfw.core import ConfigError, EvictionRule, load_plugins
from llmfw.core.schedule.cache.isolated_rule import choose_rule
from llmfw.core.testing import EvictionRuleTests
from llmfw.core.testing.eviction_rules import LeafData
from llmfw.plugins.eviction.ttl import TTL

HOUR_S = 3600.0
ORDERS: Mapping[str, Callable[[LeafData], Any]] = {
    "lru": lambda leaf: leaf.last_use,
    "lfu": lambda leaf: (leaf.hits, leaf.last_use),
    "size": lambda leaf: Fraction(leaf.floor) + Fraction(1 + leaf.hits, leaf.num_pages),
    "ttl": lambda leaf: leaf.last_use,
}


@pytest.mark.parametrize("name", ORDERS)
class TestBundled(EvictionRuleTests):
    @pytest.fixture
    def rule(self, name: str) -> EvictionRule:
        return choose_rule(load_plugins().registry, name, {}).component

    @pytest.fixture
    def order(self, name: str) -> Callable[[LeafData], Any]:
        return ORDERS[name]

    @pytest.fixture
    def expiry(self, name: str) -> Callable[[LeafData], float | None]:
        return lambda leaf: leaf.used_at + HOUR_S if name == "ttl" else None


class TestSinceCreation(EvictionRuleTests):
    @pytest.fixture
    def rule(self) -> EvictionRule:
        return TTL(TTL.Options(since="created"))

    @pytest.fixture
    def expiry(self) -> Callable[[LeafData], float | None]:
        return lambda leaf: leaf.created_at + HOUR_S


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown eviction rule 'fifo'; known: lfu, lru, size, ttl"):
        choose_rule(load_plugins().registry, "fifo", {})


def test_a_wrong_option_names_the_rule() -> None:
    registry = load_plugins().registry
    with pytest.raises(ConfigError, match=r"eviction rule 'ttl' .*eviction\.seconds is '0'; it must be"):
        choose_rule(registry, "ttl", {"eviction.seconds": "0"})
    with pytest.raises(ConfigError, match=r"eviction rule 'lru' has no option 'seconds'"):
        choose_rule(registry, "lru", {"eviction.seconds": "1"})
