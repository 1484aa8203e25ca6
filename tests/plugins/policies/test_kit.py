"""The bundled policies keep the promises of their interface."""

from __future__ import annotations

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.plugins import load_plugins

from .few_seeds import FewSeeds

ENTRIES = [entry for entry in load_plugins().registry.entries("policy") if entry.plugin == "policies"]


class TestBundledPolicies(FewSeeds):
    @pytest.fixture(params=ENTRIES, ids=lambda entry: entry.name)
    def policy(self, request: pytest.FixtureRequest) -> SchedulePolicy:
        return request.param.load()(request.param.build_options({}))


@pytest.mark.parametrize("name", ["lpm", "sjf"])
class TestWithABound(FewSeeds):
    @pytest.fixture
    def policy(self, name: str) -> SchedulePolicy:
        [entry] = [entry for entry in ENTRIES if entry.name == name]
        return entry.load()(entry.build_options({"policy.max_overtaken": "3"}))
