"""Policies as a command line spells them: `lpm`, `fcfs`, `lpm:max_overtaken=8,other=1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmfw.core import Registry
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, load_policy

from .errors import SimulatorError


def policy_maker(
    spelling: str, options: Mapping[str, str], registry: Registry
) -> Callable[[], IsolatedPolicy]:
    """Return a function that makes fresh policies.

    Args:
        spelling: name and own options.
        options: "policy.key" → value, for all policies; the policy's own options take precedence.
        registry: registry to look names up in.

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
    load_policy(registry, name, given)  # tells at once what is wrong with it
    return lambda: load_policy(registry, name, given)
