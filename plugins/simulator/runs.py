"""Replays a trace with one policy, one router and a number of replicas, and computes the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import click

from llmfw.core import Registry
from llmfw.core.client.replicas.isolated_router import IsolatedRouter, build_router
from llmfw.core.plugin.defaults import default_name
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.isolated_policy import IsolatedPolicy

from .errors import SimulatorError
from .figures import Figures, Floats, figures_of, ttfts
from .policies import policy_maker, rule_maker
from .profile import Profile
from .replay import replay
from .settings import Settings
from .table import label_of
from .trace import TraceRequest


@dataclass
class Runs:
    """Replays of one trace.

    Args:
        trace: requests in the order of arrival.
        settings: the command's options.
        profile: cost model of the steps.
        registry: components by name.

    Attributes:
        waits: time to first token of each request in seconds, by the label of the replay.
    """

    trace: Sequence[TraceRequest]
    settings: Settings
    profile: Profile
    registry: Registry
    waits: dict[str, Floats] = field(default_factory=dict)

    def check(self) -> None:
        """Raise the error that a component of the settings would raise in a replay."""
        for policy in self.settings.policies:
            self._policy_maker(policy)
        for router in self.settings.routers:
            self._router(router)
        self._rule_maker([])

    def run(self, policy: str, router: str, num_replicas: int) -> Figures:
        """Replay the trace once.

        Raises:
            SimulatorError: a policy, a router or an eviction rule failed.
        """
        settings, begun = replace(self.settings, replicas=num_replicas), time.perf_counter()
        rules: list[IsolatedRule] = []
        make_policy, chosen = self._policy_maker(policy), self._router(router)
        policies = [make_policy() for _ in range(num_replicas)]
        engine = settings.engine(self._rule_maker(rules))
        ledger = replay(self.trace, engine, self.profile, policies, router=chosen, speed=settings.speed)
        failures = [(f"policy {policy!r}", each.failure) for each in policies]
        failures += [(f"eviction rule {settings.eviction!r}", each.failure) for each in rules]
        failures.append((f"router {router!r}", chosen.failure))
        for what, failure in failures:
            if failure is not None:
                raise SimulatorError(f"{what} failed: {failure}")
        figures = figures_of(ledger, self.trace, self.profile, settings.chunk)
        found = {"policy": policy, **figures, "settings": settings.described(router)}
        self.waits[label_of(found)] = ttfts(ledger)
        took_s = time.perf_counter() - begun
        click.echo(f"{label_of(found)}: {len(self.trace)} requests in {took_s:.1f} s", err=True)
        return found

    def _policy_maker(self, spelling: str) -> Callable[[], IsolatedPolicy]:
        return policy_maker(spelling, self.settings.options_of("policy"), self.registry)

    def _router(self, name: str) -> IsolatedRouter:
        return build_router(
            self.registry, default_name(self.registry, "router", name), self.settings.options_of("router")
        )

    def _rule_maker(self, made: list[IsolatedRule]) -> Callable[[], IsolatedRule]:
        name = default_name(self.registry, "eviction", self.settings.eviction)
        return rule_maker(name, self.settings.options_of("eviction"), self.registry, made)
