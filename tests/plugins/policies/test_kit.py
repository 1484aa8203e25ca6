"""The bundled policies keep the promises of their interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.policies.edf import EDF
from llmfw.plugins.policies.fair import Fair
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.policies.priority import Priority
from llmfw.plugins.policies.sjf import SJF

from .few_seeds import FewSeeds
from .plain_policies import PlainEDF, PlainFair, PlainLPM, PlainPolicy, PlainPriority, PlainSJF

PLAIN: Mapping[type[SchedulePolicy], SchedulePolicy] = {
    LPM: PlainLPM(bound=256),
    FCFS: PlainPolicy(),
    Priority: PlainPriority(),
    Fair: PlainFair(),
    SJF: PlainSJF(bound=256),
    EDF: PlainEDF(),
}
ENTRIES = [entry for entry in load_plugins().registry.entries("policy") if entry.plugin == "policies"]


class TestBundledPolicies(FewSeeds):
    @pytest.fixture(params=ENTRIES, ids=lambda entry: entry.name)
    def policy(self, request: pytest.FixtureRequest) -> SchedulePolicy:
        return request.param.load()(request.param.build_options({}))

    @pytest.fixture
    def reference(self, policy: SchedulePolicy) -> SchedulePolicy:
        return PLAIN[type(policy)]

    @pytest.fixture
    def fields(self, policy: SchedulePolicy) -> Sequence[str]:
        return ("deadline_ms",) if isinstance(policy, EDF) else ()


@pytest.mark.parametrize("name", ["lpm", "sjf"])
class TestWithABound(FewSeeds):
    @pytest.fixture
    def policy(self, name: str) -> SchedulePolicy:
        [entry] = [entry for entry in ENTRIES if entry.name == name]
        return entry.load()(entry.build_options({"policy.max_overtaken": "3"}))

    @pytest.fixture
    def reference(self, name: str) -> SchedulePolicy:
        return {"lpm": PlainLPM, "sjf": PlainSJF}[name](bound=3)
