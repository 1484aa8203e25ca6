"""A policy that an administrator set is set again after a restart, unless engines die under it."""

from __future__ import annotations

import pytest

from llmfw.core.base.control import SetPolicy
from llmfw.core.client.policy_memory import MAX_DEATHS, WITHIN_S, PolicyMemory


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def memory() -> PolicyMemory:
    found = PolicyMemory(Clock())
    found.remember(SetPolicy("bad"))
    return found


def test_one_death_keeps_the_policy(memory: PolicyMemory) -> None:
    memory.note_death()
    assert memory.command == SetPolicy("bad")


def test_a_policy_under_which_engines_die_is_forgotten(
    memory: PolicyMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy that hung made the watchdog kill each new engine, and nothing was served any more."""
    for _ in range(MAX_DEATHS):
        memory.note_death()
    assert memory.command is None
    assert "The policy bad, which was set while the server ran, is not set again" in caplog.text


def test_rare_deaths_keep_the_policy(memory: PolicyMemory) -> None:
    clock = memory._clock
    assert isinstance(clock, Clock)
    for _ in range(5):
        memory.note_death()
        clock.now += WITHIN_S
    assert memory.command == SetPolicy("bad")


def test_setting_a_policy_starts_anew(memory: PolicyMemory) -> None:
    memory.note_death()
    memory.remember(SetPolicy("lpm"))
    memory.note_death()
    assert memory.command == SetPolicy("lpm")
