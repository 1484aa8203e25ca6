"""The load under which policies are tested is one."""

from __future__ import annotations

from llmfw.core.testing.policy_load import PolicyLoad
from llmfw.plugins.policies.fcfs import FCFS


def test_the_load_retracts_and_is_deterministic() -> None:
    loads = [PolicyLoad(FCFS(FCFS.Options()), seed=1) for _ in range(2)]
    for load in loads:
        load.run(60)
    assert loads[0].num_retractions == loads[1].num_retractions > 0
    assert loads[0].given == loads[1].given == loads[0].asked
