"""Keeps a faulty eviction rule from failing requests.

Logs the rule's first fault, and does not call the rule again. A rule comes from a plugin. It is faulty if it
raises, returns something other than a finite number, or lowers the rank of a leaf. From then on, the cache
evicts the least recently used leaf first. The time that a rule takes is not limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.eviction_rule import CacheLeaf, EvictionRule
from llmfw.core.plugin.asking import Asked, WrongAnswerError
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.choice import Created, create
from llmfw.core.plugin.registry import Registry

INFINITY = math.inf
_PLAIN = frozenset({int, float})


def least_recently_used(leaf: CacheLeaf) -> float:
    """Rank leaves by last use."""
    return leaf.last_use


class IsolatedRule:
    """Wraps an eviction rule so that ranks are always finite numbers. Ranks by last use after a fault.

    Args:
        rule: rule, called until its first fault; None: leaves are ranked by last use, without a component.
        who: description of the rule for the log: name, plugin, package and version.
        calls: record of the component's failures; None: not recorded. Calls are not timed, because most take
            less time than timing them.

    Attributes:
        generation: 0 until the rule fails, then 1. When it changes, all ranks must be computed again.
        expires: whether leaves may expire.
    """

    def __init__(
        self, rule: EvictionRule | None = None, who: str = "under test", calls: ComponentCalls | None = None
    ) -> None:
        self.generation = 0
        self.expires = rule is not None and type(rule).expires_at is not EvictionRule.expires_at
        instead = "The least recently used prefixes are evicted first from now on"
        if self.expires:
            instead += ", and none of them expires from now on"
        self._asked = Asked(who, instead, calls)
        self._rank: Callable[[CacheLeaf], float] = least_recently_used if rule is None else rule.rank
        self._expires_at: Callable[[CacheLeaf], float | None] = _never if rule is None else rule.expires_at

    @property
    def failure(self) -> str | None:
        """Description of the rule's first fault; None if it has not failed."""
        return self._asked.failure

    def rank(self, leaf: CacheLeaf) -> float:
        """Return a leaf's rank, a finite number; if the rule has failed, the time of the leaf's last use."""
        try:
            found = self._rank(leaf)
            if found.__class__ in _PLAIN and -INFINITY < found < INFINITY:
                return found
            return check_rank(found)
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is logged
            self._fail(error)
            return least_recently_used(leaf)

    def expires_at(self, leaf: CacheLeaf) -> float | None:
        """Return the time at which a leaf expires; None if it does not expire or the rule has failed."""
        try:
            return check_time(self._expires_at(leaf))
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is logged
            self._fail(error)
            return None

    def note_decrease(self, before: float, now: float) -> None:
        """Take the rule out of use, because the rank of a leaf has decreased."""
        self._fail(WrongAnswerError(f"rank() of one leaf decreased from {before!r} to {now!r}"))

    def _fail(self, error: BaseException) -> None:
        def fail() -> None:
            raise error

        self._asked.answer(fail)
        self._rank, self._expires_at = least_recently_used, _never
        self.generation = 1


def choose_rule(registry: Registry, name: str, options: Mapping[str, OptionValue]) -> Created[EvictionRule]:
    """Build the eviction rule with this name.

    Args:
        name: "name" or "plugin/name".
        options: options by "eviction.key"; options of other kinds of components are ignored.

    Raises:
        ConfigError: no rule has this name, an option is unknown, or an option has an invalid value.
        ComponentError: the rule cannot be imported or built.
    """
    return create(registry, "eviction", name, options)


def isolated_rule(registry: Registry, created: Created[EvictionRule]) -> IsolatedRule:
    """Wrap a rule that was built by `choose_rule`."""
    entry = created.entry
    who = (
        f"the eviction rule {entry.name!r} of plugin {entry.plugin!r} ({entry.distribution} {entry.version})"
    )
    return IsolatedRule(created.component, who, registry.ledger.of(entry))


def check_rank(found: Any) -> float:
    """Return a rule's rank as a plain number.

    Raises:
        WrongAnswerError: the rank is not a finite number.
    """
    if not isinstance(found, int | float | np.integer | np.floating):
        raise WrongAnswerError(f"rank() returned {_shown(found)}, not a number")
    if not -INFINITY < found < INFINITY:
        raise WrongAnswerError(f"rank() returned {found!r}, not a finite number")
    return int(found) if isinstance(found, int | np.integer) else float(found)


def check_time(found: Any) -> float | None:
    """Return a rule's time of expiry as a float; None if there is none.

    Raises:
        WrongAnswerError: the time is neither None nor a number.
    """
    if found is None:
        return None
    is_number = isinstance(found, int | float | np.integer | np.floating) and not isinstance(found, bool)
    if not is_number or math.isnan(found):
        raise WrongAnswerError(f"expires_at() returned {_shown(found)}, neither None nor a time in seconds")
    return float(found) if found < INFINITY else None


def _never(leaf: CacheLeaf) -> float | None:
    return None


def _shown(found: object) -> str:
    return repr(found) if found is None or isinstance(found, float | bool) else f"a {type(found).__name__}"
