"""`llmfw check`: runs the tests of an installed component's kind against the component.

Imports pytest and the tests (through `api.checks.component_check`) only once the component is found.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmfw.api.checks.own_process import Tell, watched
from llmfw.api.settings.component_options import OPTIONS, Assignment, collect
from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.core.base.errors import ComponentError, ConfigError, LLMFWError
from llmfw.core.base.suggestion import did_you_mean
from llmfw.core.plugin.kinds import INTERFACES, import_path
from llmfw.core.plugin.registry import Entry
from llmfw.core.terminal.finite_range import FiniteRange

from .check_others import KINDS, check_others, find_others

if TYPE_CHECKING:
    from llmfw.api.checks.verdict import Promise, Verdict
    from llmfw.core.base.setting_types import OptionValue

NEEDS = ("pytest", "hypothesis")
PAGE = "docs/testing_a_plugin.md"


class CheckError(click.ClickException):
    """The check could not be run."""

    exit_code = 2


def check_kind(ctx: click.Context, param: click.Parameter, kind: str) -> str:
    """Callback of the argument KIND: return the kind's name, with underscores."""
    found = kind.replace("-", "_")
    kinds = (*INTERFACES, *KINDS)
    if found not in kinds:
        hint = did_you_mean(found, kinds)
        raise click.BadParameter(f"there is no kind {kind!r}; kinds are {', '.join(kinds)}{hint}", ctx, param)
    return found


def read_fixtures(
    ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """Callback of `--set`: return name → value. Values that are valid JSON are decoded."""
    return {name: _value(text) for name, text in pairs}


@click.command("check", short_help="Run the conformance tests of an installed component.")
@click.argument("kind", callback=check_kind)
@click.argument("name")
@click.option(
    "-o",
    "--option",
    "options",
    type=Assignment(),
    multiple=True,
    callback=collect,
    metavar="KIND.KEY=VALUE",
    help="Set an option of the component; repeatable.",
)
@click.option(
    "--set",
    "fixtures",
    type=Assignment(),
    multiple=True,
    callback=read_fixtures,
    metavar="FIXTURE=VALUE",
    help="Set a value that the tests need, such as device=cuda or survives_reopening=true; repeatable.",
)
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop a test that takes longer, and count it as failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Print tracebacks of failures.")
@click.pass_context
def check_command(
    ctx: click.Context,
    kind: str,
    name: str,
    options: dict[str, OptionValue],
    fixtures: dict[str, Any],
    timeout: float,
    as_json: bool,
    verbose: bool,
) -> None:
    """Run the conformance tests of a KIND on the installed component NAME.

    KIND is as in `llmfw plugins`: policy, attention, tool_parser, …. The component is built as a server
    builds it. A promise is a rule of the interface. Prints one line for each promise, with the reason if the
    promise is broken or could not be checked. For a command or a route, checks whether llmfw can use it. The
    NAME of a route is its import path, or the name of its plugin.

    Exit code: 0 if all checked promises hold; 1 if a promise is broken; 2 if nothing could be checked.
    """
    if kind in KINDS and fixtures:
        raise CheckError(f"--set names fixtures of a component's tests; a {kind} has none")

    def check(tell: Tell) -> None:
        if kind in KINDS:
            ctx.exit(_check_others(ctx, kind, name, as_json, verbose))
        entry = _find(ctx, kind, name, options)
        own_options = {key: value for key, value in options.items() if key.startswith(f"{kind}.")}
        from llmfw.api.checks.component_check import explained, run_check

        if not as_json:
            click.echo(f"{entry}:")
        verdict = run_check(
            kind,
            entry.full_name,
            own_options,
            fixtures,
            home=Path(inspect.getfile(entry.load(checked=False))).parent,
            timeout=timeout,
            show=_Printer(verbose).show if not as_json else lambda promise: None,
            tell=tell,
        )
        if verdict.error is not None:
            raise CheckError(explained(verdict.error))
        click.echo(json.dumps(_described(entry, verdict), indent=2) if as_json else _summary(entry, verdict))
        ctx.exit(verdict.exit_code)

    if (ended := watched(check)) is not None:
        click.echo(json.dumps({"verdict": "broken", "reason": ended}) if as_json else f"BROKEN: {ended}.")
        ctx.exit(1)


def _check_others(ctx: click.Context, kind: str, name: str, as_json: bool, verbose: bool) -> int:
    """Check the commands or routes with a given name; print the results, and return the exit code."""
    plugins, code = plugins_of(ctx), 0
    own = getattr(ctx.find_root().command, "own_commands", ())
    for entry in find_others(kind, name, plugins, ctx):
        if not as_json:
            click.echo(f"{entry}, of {entry.distribution} {entry.version}:")
        show = _Printer(verbose).show if not as_json else lambda promise: None
        verdict = check_others(entry, plugins, own, show)
        click.echo(json.dumps(_described(entry, verdict), indent=2) if as_json else _summary(entry, verdict))
        code = max(code, verdict.exit_code)
    return code


def _find(ctx: click.Context, kind: str, name: str, options: dict[str, OptionValue]) -> Entry:
    """Return the component's entry, after making sure that the component can be imported and built.

    Raises:
        click.BadParameter: no component has this name.
        CheckError: the component lacks something that it needs, pytest is missing, or an option is wrong.
        ComponentError: the component is too broken to be checked.
    """
    try:
        entry = plugins_of(ctx).registry.find(kind, name)
    except LLMFWError as error:
        raise click.BadParameter(str(error), ctx, param_hint="NAME") from error
    if lacking := entry.lacking():
        raise CheckError(f"{entry} {lacking}")
    if missing := [module for module in NEEDS if importlib.util.find_spec(module) is None]:
        raise CheckError(
            f"`llmfw check` needs {' and '.join(missing)}, which is not installed: pip install 'llmfw-engine[testing]'"
        )
    entry.load(checked=False)
    for option in ctx.meta[OPTIONS]:
        if option.source is None and not option.key.startswith(f"{kind}."):
            raise CheckError(f"option {option.key!r} is not one of a {kind}; they are named {kind}.…")
    _try_options(entry, options)
    return entry


def _try_options(entry: Entry, options: dict[str, OptionValue]) -> None:
    """Build the options, and the component if it takes only options. A missing option would fail every test.

    Raises:
        CheckError: an option is missing or wrong.
    """
    try:
        built = entry.build_options(options)
    except ComponentError as error:  # the tests report what is wrong with the class
        if options:
            raise CheckError(str(error)) from error
        return
    except ConfigError as error:
        raise CheckError(str(error)) from error
    if list(inspect.signature(import_path(INTERFACES[entry.kind])).parameters) != ["options"]:
        return
    try:
        entry.build(entry.load(checked=False), built)
    except ComponentError:
        return  # the tests report what is wrong with the class, with a traceback
    except ConfigError as error:
        raise CheckError(f"{entry} cannot be built: {error}") from error


class _Printer:
    """Prints promises as they are checked. Prints the same reason of several promises in a row only once."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._last = ""
        self._out = sys.stdout  # kept, because pytest replaces sys.stdout

    def show(self, promise: Promise) -> None:
        """Print the line of a promise, with the reason if it is broken or was not checked."""
        cases = (
            f" ({promise.broken} of {promise.num_cases} cases)"
            if promise.broken and promise.num_cases > 1
            else ""
        )
        skipped = f": {promise.reason}" if promise.outcome == "skipped" else ""
        self._print(f"  {promise.outcome:8} {promise.sentence}{cases}{skipped}")
        if promise.broken:
            reason = promise.traceback if self._verbose else promise.reason
            lines = reason.splitlines() if reason != self._last else ["(as above)"]
            self._last = reason
            for line in lines:
                self._print(f"             {line}")
            if promise.where and lines != ["(as above)"]:
                self._print(f"             at {promise.where}")

    def _print(self, line: str) -> None:
        click.echo(line, file=self._out)


def _summary(entry: Entry, verdict: Verdict) -> str:
    kept, broken, skipped = (verdict.count(outcome) for outcome in ("ok", "FAILED", "skipped"))
    counts = f"{kept} kept, {broken} broken, {skipped} not checked ({verdict.seconds:.1f} s)"
    if broken:
        return f"BROKEN: {counts}. Tracebacks by -v; what each promise is about: {PAGE}"
    if not kept:
        return f"NOTHING CHECKED: {counts}. What the tests need to know can be set by --set; see {PAGE}"
    return f"OK: {counts}. {entry.name!r} keeps the promises of its kind that could be checked."


def _described(entry: Entry, verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "plugin": entry.plugin,
        "package": entry.distribution,
        "version": entry.version,
        "verdict": ("ok", "broken", "nothing checked")[verdict.exit_code],
        "seconds": round(verdict.seconds, 3),
        "promises": [
            {
                "name": promise.name,
                "promise": promise.sentence,
                "outcome": promise.outcome.lower(),
                "cases": {"kept": promise.kept, "broken": promise.broken, "skipped": promise.skipped},
                "reason": promise.reason,
                "where": promise.where,
            }
            for promise in verdict.promises
        ],
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
