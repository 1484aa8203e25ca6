"""One call of `llmfw simulate`: reads the trace, replays it with each policy, prints the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import click
import msgspec

from llmfw.core import load_plugins
from llmfw.core.plugin.defaults import default_name
from llmfw.core.terminal.tables import print_table

from .bounds import infinite_hit_rate
from .errors import SimulatorError
from .figures import Figures
from .objective import smallest
from .profile import Profile, load_profile, save_profile
from .profiles import NAMED, named_profile
from .runs import Runs
from .settings import PAGE_SIZE, Settings
from .table import COLUMNS, check_plot, plot, rows
from .trace import TraceRequest, read_trace, recorded_page_size


def bundled(policy: str) -> str:
    """Return the registered name of llmfw's own policy, even if another plugin has a policy of this name."""
    return default_name(load_plugins().registry, "policy", policy)


def simulate(path: Path, settings: Settings) -> None:
    """Replay a trace with each policy and router; print JSON or a table to stdout, progress to stderr.

    Raises:
        SimulatorError: the trace or profile cannot be used, the plot cannot be written, a component failed, or
            no number of replicas meets the objective.
        ConfigError: a component, or an option of a component, is unknown.
    """
    if settings.plot is not None:
        check_plot()
    registry = load_plugins().registry
    profile = choose_profile(settings.profile)
    Runs((), settings, profile, registry).check()
    trace = read_trace(path, limit=settings.limit, block_size=settings.block_size)
    if settings.page_size is None:
        settings = replace(settings, page_size=recorded_page_size(trace) or PAGE_SIZE)
    bound = {"infinite_hit_rate": round(infinite_hit_rate(trace), 6)} if settings.infinite else {}
    runs = Runs(trace, settings, profile, registry)
    results: list[Figures] = []
    for policy, router in product(settings.policies, settings.routers):
        for figures in _replayed(runs, settings, policy, router):
            results.append({**figures, **bound})
            if settings.as_json:
                click.echo(msgspec.json.encode(results[-1]))
    if not settings.as_json:
        _print(results, trace, bound)
    if settings.plot is not None:
        plot(results, runs.waits, settings.plot)


def _replayed(runs: Runs, settings: Settings, policy: str, router: str) -> list[Figures]:
    """Return the figures of one replay, or, with an objective, of the replicas it needs and of one fewer.

    Raises:
        SimulatorError: no number of replicas up to the one of the settings meets the objective.
    """
    if settings.objective is None:
        return [runs.run(policy, router, settings.replicas)]
    objective, found = settings.objective, dict[int, Figures]()

    def run(count: int) -> Figures:
        found[count] = runs.run(policy, router, count)
        return found[count]

    count = smallest(objective, settings.replicas, run)
    if count is None:
        figures = found[settings.replicas]
        reason = (
            f"{figures['refused']} requests do not fit into an engine; raise --max-total-tokens"
            if figures["refused"]
            else f"{objective.metric} is {figures[f'{objective.metric}_ms']} ms with them; raise --replicas, the largest number to try"
        )
        raise SimulatorError(f"{settings.replicas} replicas do not meet --slo: {reason}")
    return [found[each] for each in (count, count - 1) if each in found]


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
