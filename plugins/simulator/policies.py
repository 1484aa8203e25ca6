"""Policies as a command line spells them: `lpm`, `fcfs`, `lpm:max_overtaken=8,other=1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llmfw.core.policy import SchedulePolicy
from llmfw.core.registry import Registry

from .errors import SimulatorError


def policy_maker(
    spelling: str, options: Mapping[str, str], registry: Registry
) -> Callable[[], SchedulePolicy]:
    """Return a function that makes fresh policies.

    Args:
        spelling: name and own options.
        options: "policy.key" → value, for all policies; its own go first.
        registry: where names are looked up.

    Raises:
        ConfigError: as `Registry.find` and `Entry.build_options`.
        SimulatorError: the spelling is none.
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
    entry = registry.find("policy", name)
    made, built = entry.load(), entry.build_options(given)
    return lambda: made(built)
