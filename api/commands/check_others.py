"""The checks of `llmfw check` for a plugin's routes and commands, which are not components."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import click

from llmfw.api.checks.verdict import Promise, Verdict
from llmfw.core.base.described import described
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.plugins import LoadedPlugin, Plugins
from llmfw.core.plugin.registry import Entry

KINDS = ("command", "route")
HEAVY = ("torch", "transformers", "litestar")
_LISTED = (
    "import sys; from llmfw.core.plugin.plugins import load_plugins; load_plugins(); "
    f"print(*[name for name in {HEAVY} if name in sys.modules])"
)


def find_others(kind: str, name: str, plugins: Plugins, ctx: click.Context) -> list[Entry]:
    """Return the commands or routes with a given name.

    Args:
        kind: "command" or "route".
        name: name of the command; import path of a route, or name of a plugin with routes.

    Raises:
        click.BadParameter: nothing has this name.
    """
    found = [entry for plugin in plugins.loaded for entry in _brought(kind, plugin)]
    chosen = [entry for entry in found if name in (entry.name, entry.full_name)]
    if kind == "route":
        chosen += [entry for entry in found if entry.plugin == name]
    if not chosen:
        names = ", ".join(entry.name for entry in found) or "none"
        broken = f" ({'; '.join(map(str, plugins.broken))})" if plugins.broken else ""
        raise click.BadParameter(
            f"no plugin brings a {kind} {name!r}; known: {names}{broken}", ctx, param_hint="NAME"
        )
    return chosen


def check_others(
    entry: Entry, plugins: Plugins, own_commands: tuple[str, ...], show: Callable[[Promise], None]
) -> Verdict:
    """Check a command or a route.

    Args:
        own_commands: names of llmfw's own commands.
        show: called with each promise once it is checked.
    """
    start = time.monotonic()
    verdict = Verdict()
    if entry.kind == "route":
        from llmfw.api.checks.route_check import check_route  # imports Litestar

        found = check_route(entry, plugins)
    else:
        found = _check_command(entry, plugins, own_commands)
    for promise in found:
        verdict.promises.append(promise)
        show(promise)
    verdict.seconds = time.monotonic() - start
    return verdict


def _brought(kind: str, plugin: LoadedPlugin) -> Iterator[Entry]:
    package = (plugin.distribution, plugin.version)
    if kind == "route":
        for path in plugin.routes:
            yield Entry(kind, path, path, plugin.name, *package)
    else:
        for command in plugin.commands:
            module = getattr(command.callback, "__module__", plugin.name)  # a LazyCommand is not imported
            yield Entry(kind, str(command.name), module, plugin.name, *package)


def _check_command(entry: Entry, plugins: Plugins, own: tuple[str, ...]) -> Iterator[Promise]:
    [command] = [
        command
        for plugin in plugins.loaded
        if plugin.name == entry.plugin
        for command in plugin.commands
        if command.name == entry.name
    ]
    yield _run_check("its_name_is_its_own", lambda: _check_name(entry, plugins, own))
    yield _run_check("lists_of_commands_say_what_it_does", lambda: _check_summary(command))
    yield _run_check("its_help_can_be_printed", lambda: _check_help(command))
    yield _run_check("whoever_lists_commands_imports_nothing_heavy", lambda: _check_light(entry))


def _run_check(name: str, check: Callable[[], str | None]) -> Promise:
    """Run a check and return its outcome as a promise.

    Args:
        check: function that returns an error message, or None if the promise holds.
    """
    promise = Promise(name)
    try:
        reason = check()
    except BaseException as error:  # noqa: BLE001 (foreign code may raise anything)
        raise_if_process_ends(error)
        reason = described(error)
        promise.traceback = traceback.format_exc()
    promise.kept, promise.broken = int(reason is None), int(reason is not None)
    promise.reason = reason or ""
    promise.traceback = promise.traceback or promise.reason
    return promise


def _check_name(entry: Entry, plugins: Plugins, own: tuple[str, ...]) -> str | None:
    if entry.name in own:
        return f"llmfw has a command {entry.name!r} of its own; this one is called {entry.full_name!r}"
    others = [
        plugin.name
        for plugin in plugins.loaded
        for command in plugin.commands
        if command.name == entry.name and plugin.name != entry.plugin
    ]
    return f"plugin {others[0]!r} brings one, too; this one is called {entry.full_name!r}" if others else None


def _check_summary(command: click.Command) -> str | None:
    return None if command.get_short_help_str() else "it has none: give the function a docstring"


def _check_help(command: click.Command) -> str | None:
    from click.testing import CliRunner

    done = CliRunner().invoke(command, ["--help"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return None if done.exit_code == 0 else f"`--help` ends with exit code {done.exit_code}: {done.output}"


def _check_light(entry: Entry) -> str | None:
    env = os.environ | {"LLMFW_PLUGINS": entry.plugin, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LISTED], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    found = done.stdout.split()
    return f"declaring it imports {', '.join(found)}; import that in the command" if found else None
