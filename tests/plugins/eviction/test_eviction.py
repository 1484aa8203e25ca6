"""The bundled eviction rules keep the promises of their interface, and are found by their names."""

from __future__ import annotations

import pytest

from llmfw.core import ConfigError, EvictionRule, load_plugins
from llmfw.core.schedule.cache.isolated_rule import choose_rule
from llmfw.core.testing import EvictionRuleTests
from llmfw.plugins.eviction.ttl import TTL


class TestBundled(EvictionRuleTests):
    @pytest.fixture(params=["lru", "lfu", "size", "ttl"])
    def rule(self, request: pytest.FixtureRequest) -> EvictionRule:
        return choose_rule(load_plugins().registry, request.param, {}).component


class TestSinceCreation(EvictionRuleTests):
    @pytest.fixture
    def rule(self) -> EvictionRule:
        return TTL(TTL.Options(since="created"))


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown eviction rule 'fifo'; known: lfu, lru, size, ttl"):
        choose_rule(load_plugins().registry, "fifo", {})


def test_a_wrong_option_names_the_rule() -> None:
    registry = load_plugins().registry
    with pytest.raises(ConfigError, match=r"eviction rule 'ttl' .*eviction\.seconds: '0' is not"):
        choose_rule(registry, "ttl", {"eviction.seconds": "0"})
    with pytest.raises(ConfigError, match=r"eviction rule 'lru' has no option 'seconds'"):
        choose_rule(registry, "lru", {"eviction.seconds": "1"})
