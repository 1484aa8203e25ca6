"""Finds environment variables that start with LLMFW_ but are unknown to llmfw."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping

import click

from .option import ENVIRONMENT, SettingOption

OTHERS = (
    "LLMFW_PLUGINS",
    "LLMFW_STRICT_PLUGINS",
    "LLMFW_TRACE_PLUGINS",
    "LLMFW_PLAIN_IMPORTS",
    "LLMFW_TRITON_PDL",
    "LLMFW_PARENT_PID",
    "LLMFW_OPENAI_DOCUMENT",
)
"""Variables of llmfw that are not settings."""

_QUIET = re.compile(r"LLMFW_(TEST_.*|SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_.*)", re.DOTALL)
"""Variables that cause no warning: those of llmfw's tests, and those of Kubernetes for a service `llmfw`."""


_WARNED = "llmfw.unknown_variables"


def warn_of_unknown(ctx: click.Context) -> None:
    """Warn of unknown environment variables that are set. Prints at most one warning per command line.

    Variables of any setting of `llmfw serve` are known to all commands, because commands share an
    environment.
    """
    if ctx.meta.setdefault(_WARNED, False):
        return
    ctx.meta[_WARNED] = True
    from .options import model_option, setting_options  # imports all settings; most commands do not need it

    if warning := warning_of(os.environ, [model_option(), *setting_options()]):
        click.echo(f"warning: {warning}", err=True)


def warning_of(environ: Mapping[str, str], options: Iterable[SettingOption]) -> str | None:
    """Return a warning that names the unknown environment variables that are set; None if there are none.

    Args:
        options: all settings.
    """
    known = {*OTHERS, *(str(option.envvar) for option in options if option.envvar)}
    found = [_shown(name, known) for name in _unknown(environ, known)]
    if not found:
        return None
    several = "s" if len(found) > 1 else ""
    return f"llmfw does not know the environment variable{several} {', '.join(found)}"


def _unknown(environ: Mapping[str, str], known: set[str]) -> Iterator[str]:
    """Yield the names of unknown variables, sorted.

    Skips names with two consecutive underscores. These are options of components, which are checked
    elsewhere.
    """
    for name, value in sorted(environ.items()):
        is_ours = name.startswith(ENVIRONMENT) and "__" not in name.removeprefix(ENVIRONMENT)
        if value and is_ours and name not in known and not _QUIET.fullmatch(name):
            yield name


def _shown(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
    shown = name[:60] if name.isprintable() else ascii(name[:60])
    return f"{shown} (did you mean {near[0]}?)" if near else shown
