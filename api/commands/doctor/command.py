"""The command `llmfw plugins doctor`: prints a line per finding, and sets an exit code for CI."""

from __future__ import annotations

import json
from itertools import chain

import click

from llmfw.core.plugin.package_metadata import without_plugins
from llmfw.core.plugin.plugins import GROUP, NAMES_NO_PLUGIN
from llmfw.core.terminal.finite_range import FiniteRange

from .examination import Examined, Finding, damages, examine, grouped, installed_plugins


@click.command("doctor", short_help="Import every component, and hold it against its interface.")
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop an import that takes longer, and report it as a problem.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor_command(ctx: click.Context, timeout: float, as_json: bool) -> None:
    """Load every plugin, import every component, and report the problems.

    Each plugin of another package is loaded in a separate process. For each component, checks whether its class can be imported
    and implements its interface, whether all methods exist and accept the interface's arguments, and whether
    the options have valid defaults. Also measures how long the import takes. A component that lacks a package
    is listed, but is not a problem. The exit code is 1 if there are problems.
    """
    examined: list[Examined] = []
    findings: list[Finding] = []
    notes = (Finding("note", f"package {package}", NAMES_NO_PLUGIN) for package in without_plugins(GROUP))

    def begun(what: str) -> None:
        if not as_json:
            click.echo(f"examining {what} …", err=True)

    for found in chain(damages(), notes, examine(grouped(installed_plugins()), timeout, begun)):
        if isinstance(found, Examined):
            examined.append(found)
        else:
            findings.append(found)
            if not as_json:
                click.echo(f"{found.level}: {found.what}: {found.text}")
    num_problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        click.echo(json.dumps(_as_data(examined, findings), indent=2))
    else:
        click.echo(_summary(examined, num_problems))
    ctx.exit(1 if num_problems else 0)


def _as_data(examined: list[Examined], findings: list[Finding]) -> dict[str, object]:
    import msgspec

    return {
        "components": [msgspec.structs.asdict(each) for each in examined],
        "findings": [msgspec.structs.asdict(each) for each in findings],
    }


def _summary(examined: list[Examined], num_problems: int) -> str:
    text = f"{_counted(len(examined), 'component')}, {_counted(num_problems, 'problem')}"
    timed = [(each.seconds, each.component) for each in examined if each.seconds is not None]
    if not timed:
        return text
    seconds, component = max(timed)
    return f"{text}; slowest to import: {component}, {seconds:.1f} s"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
