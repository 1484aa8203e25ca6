"""A setting names the components to try; one that cannot be used is passed over under "auto" only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmfw.core.base.errors import ComponentError, ConfigError, UnknownComponentError
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.choice import Rejection, choose, create
from llmfw.core.plugin.registry import Entry, Registry


def entry(name: str, path: str = "plugins", rank: int = 0, needs: tuple[str, ...] = ()) -> Entry:
    module = {"plugins": "llmfw.plugins.policies.fcfs:FCFS", "broken": "no_such_module:Policy"}[path]
    return Entry("policy", name, module, "mine", "mine", "1", rank=rank, needs=needs)


LOW, HIGH, BROKEN, LACKING = (
    entry("low"),
    entry("high", rank=2),
    entry("bad", "broken"),
    entry("lacks", needs=("no_x",)),
)
REGISTRY = Registry([LOW, HIGH, BROKEN, LACKING])


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("none", []),
        ("auto", ["high", "bad", "lacks", "low"]),
        ("low", ["low"]),
        ("low, mine/high", ["low", "high"]),
    ],
)
def test_setting_names_components(setting: str, names: list[str]) -> None:
    choice = choose(REGISTRY, "policy", setting)
    assert [each.name for each in choice.entries] == names
    assert choice.is_auto == (setting == "auto")


def test_unknown_and_repeated_names_are_refused() -> None:
    with pytest.raises(UnknownComponentError, match=r"unknown policy 'lwo'; .*Did you mean 'low'"):
        choose(REGISTRY, "policy", "lwo")
    with pytest.raises(ConfigError, match="policy 'low' is named twice in 'low,mine/low'"):
        choose(REGISTRY, "policy", "low,mine/low")


def test_auto_does_not_import_for_other_devices() -> None:
    """A component that is chosen by name is tried on any device."""
    elsewhere = replace(BROKEN, devices=("cuda", "xpu"), needs=("no_x",))
    registry = Registry([elsewhere])
    rejection = Rejection("it is for cuda, xpu", is_for_other_device=True)
    assert choose(registry, "policy", "auto", "cpu").attempt(elsewhere, str) == rejection
    for setting, device in (("auto", "xpu"), ("auto", ""), ("bad", "cpu")):
        found = choose(registry, "policy", setting, device).attempt(elsewhere, str)
        assert isinstance(found, Rejection)
        assert "no_x" in found.reason
        assert not found.is_for_other_device


def test_failures_become_reasons() -> None:
    auto, named = choose(REGISTRY, "policy", "auto"), choose(REGISTRY, "policy", "low")

    def raises(policy: type[SchedulePolicy]) -> SchedulePolicy:
        raise ZeroDivisionError("one by none")

    assert auto.attempt(LOW, lambda policy: "not on Sundays") == Rejection("not on Sundays")
    assert auto.attempt(LACKING, lambda policy: policy) == Rejection("needs no_x")
    assert named.attempt(LACKING, lambda policy: policy) == Rejection("needs no_x, which is not installed")
    for found, reason in [
        (named.attempt(LOW, raises), "failed: ZeroDivisionError: one by none"),
        (named.attempt(BROKEN, lambda policy: policy), "No module named 'no_such_module'"),
    ]:
        assert isinstance(found, Rejection)
        assert isinstance(found.error, ComponentError)
        assert reason in found.reason


def test_a_wrong_option_is_not_a_rejection() -> None:
    choice = choose(REGISTRY, "policy", "low")
    with pytest.raises(ConfigError, match="has no option 'speed'"):
        choice.attempt(LOW, lambda policy: LOW.build(policy, LOW.build_options({"policy.speed": "1"})))


def test_component_is_created_with_its_options() -> None:
    created = create(REGISTRY, "policy", "mine/low", {"attention.x": "1"})
    assert created.entry is LOW
    assert isinstance(created.component, SchedulePolicy)
    with pytest.raises(ConfigError, match="has no option 'speed'"):
        create(REGISTRY, "policy", "low", {"policy.speed": "1"})
