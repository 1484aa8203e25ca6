"""One call of `llmfw simulate`: reads the trace, replays it with each policy, prints the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec

from llmfw.core import load_plugins
from llmfw.core.plugin.defaults import default_name
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.terminal.tables import print_table

from .bounds import infinite_hit_rate
from .errors import SimulatorError
from .figures import Figures, Floats, figures_of, ttfts
from .policies import policy_maker, rule_maker
from .profile import Profile, load_profile, save_profile
from .profiles import NAMED, named_profile
from .replay import replay
from .replica import EngineSettings
from .routers import ROUTERS
from .table import COLUMNS, check_plot, plot, rows
from .trace import TraceRequest, read_trace, recorded_page_size

PAGE_SIZE = 16
"""Page size for traces that do not name one."""


@dataclass(frozen=True)
class Settings:
    """The command's options; see their help texts in command.py."""

    policies: tuple[str, ...]
    options: dict[str, str]
    profile: str
    kv_tokens: int
    page_size: int | None
    max_running: int
    chunk: int
    stretch: float
    eviction: str
    replicas: int
    router: str
    speed: float
    limit: int | None
    block_size: int
    infinite: bool
    as_json: bool
    plot: Path | None

    def engine(self, make_rule: Callable[[], IsolatedRule]) -> EngineSettings:
        """Return the settings of each replica."""
        return EngineSettings(
            self.kv_tokens,
            self.page_size or PAGE_SIZE,
            self.max_running,
            self.chunk,
            self.stretch,
            make_rule,
        )

    def described(self) -> dict[str, object]:
        """Return the settings that affect the metrics, except the trace and the policy."""
        names = (
            "profile",
            "kv_tokens",
            "page_size",
            "max_running",
            "chunk",
            "stretch",
            "eviction",
            "replicas",
            "router",
            "speed",
            "limit",
        )
        return {name: getattr(self, name) for name in names} | {"options": self.options}


def bundled(policy: str) -> str:
    """Return the registered name of llmfw's own policy, even if another plugin has a policy of this name."""
    return default_name(load_plugins().registry, "policy", policy)


def simulate(path: Path, settings: Settings) -> None:
    """Replay a trace with each policy; print JSON or a table to stdout, progress to stderr.

    Raises:
        SimulatorError: the trace or profile cannot be used, the plot cannot be written, or a policy failed.
        ConfigError: a policy, or an option of a policy, is unknown.
    """
    if settings.plot is not None:
        check_plot()
    registry = load_plugins().registry
    makers = {spelling: policy_maker(spelling, settings.options, registry) for spelling in settings.policies}
    rules: list[IsolatedRule] = []
    eviction = default_name(registry, "eviction", settings.eviction)
    make_rule = rule_maker(eviction, settings.options, registry, rules)
    profile = choose_profile(settings.profile)
    trace = read_trace(path, limit=settings.limit, block_size=settings.block_size)
    if settings.page_size is None:
        settings = replace(settings, page_size=recorded_page_size(trace) or PAGE_SIZE)
    bound = {"infinite_hit_rate": round(infinite_hit_rate(trace), 6)} if settings.infinite else {}
    results: list[Figures] = []
    waits: dict[str, Floats] = {}
    for spelling, make_policy in makers.items():
        begun = time.perf_counter()
        policies = [make_policy() for _ in range(settings.replicas)]
        router = ROUTERS[settings.router]
        ledger = replay(
            trace, settings.engine(make_rule), profile, policies, router=router, speed=settings.speed
        )
        if failure := next((policy.failure for policy in policies if policy.failure is not None), None):
            raise SimulatorError(f"policy {spelling!r} failed: {failure}")
        if failure := next((rule.failure for rule in rules if rule.failure is not None), None):
            raise SimulatorError(f"eviction rule {settings.eviction!r} failed: {failure}")
        figures = figures_of(ledger, trace, profile, settings.chunk)
        results.append({"policy": spelling, **figures, "settings": settings.described(), **bound})
        waits[spelling] = ttfts(ledger)
        click.echo(f"{spelling}: {len(trace)} requests in {time.perf_counter() - begun:.1f} s", err=True)
        if settings.as_json:
            click.echo(msgspec.json.encode(results[-1]))
    if not settings.as_json:
        _print(results, trace, bound)
    if settings.plot is not None:
        plot(results, waits, settings.plot)


def choose_profile(name: str) -> Profile:
    """Return the built-in profile with this name, or else the profile in the file with this name.

    Raises:
        SimulatorError: neither exists, or the file cannot be used.
    """
    return load_profile(Path(name)) if name not in NAMED and Path(name).exists() else named_profile(name)


def fit(model: str, save: Path, rounds: int) -> None:
    """Measure a model on this machine, and write its profile to the file `save`.

    Args:
        model: name or folder of the model.
        save: path of the file.
        rounds: number of times to run each set of prompts.

    Raises:
        ConfigError: the model cannot be loaded.
        SimulatorError: the profile cannot be written.
    """
    from .measure import measure_model  # imports torch

    save_profile(measure_model(model, lambda line: click.echo(line, err=True), rounds), save)


def _print(results: Sequence[Figures], trace: Sequence[TraceRequest], bound: Figures) -> None:
    print_table(list(COLUMNS.values()), rows(results))
    if bound:
        click.echo(f"Hit rate of an infinite cache: {bound['infinite_hit_rate']:.3f}", err=True)
    refused = results[0]["refused"]
    if refused:
        click.echo(
            f"{refused} of {len(trace)} requests are larger than the storage and were refused.", err=True
        )
