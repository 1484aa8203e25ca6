"""The options of `llmfw bench`. Imports click alone; what does the work is imported when the command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .errors import BenchError
from .workloads import ALL, WORKLOADS


def _json_object(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Return the JSON object that an option's value is."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{value!r} is not a JSON object")
    return found


def _epilog() -> str:
    lines = [f"  {w.name:10} {w.describe()}" for w in WORKLOADS.values()]
    return "\b\nWorkloads (lengths in tokens):\n" + "\n".join(lines)


@click.command(epilog=_epilog(), short_help="Measure an OpenAI-compatible server under a fixed workload.")
@click.option(
    "--base-url", default="http://127.0.0.1:30000", show_default=True, metavar="URL", help="The server."
)
@click.option(
    "--workload", default=ALL, show_default=True, metavar="NAME", help="One of those below, or all."
)
@click.option("--model", metavar="NAME", help="Model to ask for.  [default: the first of /v1/models]")
@click.option(
    "--api",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    show_default=True,
    help="Which of the server's routes to drive.",
)
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="Sent as a bearer token.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs that count, after one warm-up.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiplies the number of requests.",
)
@click.option(
    "--seed", type=int, metavar="N", help="Of the prompts; the same seed sends the same.  [default: drawn]"
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Model folder whose tokenizer.json makes prompts of exact length.",
)
@click.option(
    "--prompt-mode",
    type=click.Choice(["text", "ids"]),
    default="text",
    show_default=True,
    help="Send prompts as text or as token ids (multiturn: always text).",
)
@click.option(
    "--extra-body", callback=_json_object, metavar="JSON", help="Fields merged into each request's body."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time without a byte after which a request has failed.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per workload instead of a table."
)
def bench(workload: str, as_json: bool, **settings: Any) -> None:
    """Measure an OpenAI-compatible server: output tokens/s, time to first token and between tokens (ms).

    Tokens are counted from the server's own usage. Each request asks for an exact number of output tokens; a server
    that refuses or ignores that is found out, and its requests are counted as short. Every run has prompts of its
    own, so none is served from the prefix cache of another. Exits with 1 if a request failed.
    """
    if workload != ALL and workload not in WORKLOADS:
        raise BenchError(f"unknown workload {workload!r}; known: {', '.join([*WORKLOADS, ALL])}")
    chosen = list(WORKLOADS.values()) if workload == ALL else [WORKLOADS[workload]]
    from .session import Settings, measure

    measure(Settings(workloads=chosen, as_json=as_json, **settings))
