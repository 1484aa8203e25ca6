"""Parses policies in the command line's notation: `lpm`, `fcfs`, `lpm:max_overtaken=8,other=1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmfw.core import Registry
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule, choose_rule, isolated_rule
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, load_policy

from .errors import SimulatorError


def policy_maker(
    spelling: str, options: Mapping[str, str], registry: Registry
) -> Callable[[], IsolatedPolicy]:
    """Return a function that creates a new policy on each call.

    Args:
        spelling: name of the policy and its own options.
        options: options for all policies, "policy.key" → value; the policy's own options take precedence.
        registry: registry in which to look up the name.

    Raises:
        ConfigError, ComponentError: as in `load_policy`.
        SimulatorError: the spelling is not valid.
    """
    name, colon, own = spelling.partition(":")
    given = dict(options)
    for assignment in own.split(",") if colon else ():
        key, equals, value = assignment.partition("=")
        if not (key and equals):
            raise SimulatorError(
                f"--policy {spelling!r}: {assignment!r} is not key=value, as in {name}:key=value"
            )
        given[f"policy.{key}"] = value
    load_policy(registry, name, given)  # raises now if the name or an option is wrong
    return lambda: load_policy(registry, name, given)


def rule_maker(
    name: str, options: Mapping[str, OptionValue], registry: Registry, made: list[IsolatedRule]
) -> Callable[[], IsolatedRule]:
    """Return a function that creates a new eviction rule on each call, and appends it to `made`.

    Raises:
        ConfigError, ComponentError: as in `choose_rule`.
    """
    choose_rule(registry, name, options)  # raises now if the name or an option is wrong

    def make() -> IsolatedRule:
        made.append(isolated_rule(registry, choose_rule(registry, name, options)))
        return made[-1]

    return make
