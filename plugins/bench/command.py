"""The options of `llmfw bench`.

Imports only click; the modules that do the work are imported when the command runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.base.unreadable import unreadable
from llmfw.core.terminal.finite_range import FiniteRange

from .workloads import ALL, WORKLOADS


def _json_object(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Parse an option's value as a JSON object; None if the option is not given."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except (RecursionError, ValueError) as error:
        raise click.BadParameter(f"{value[:100]!r} is not JSON: {unreadable(error)}") from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{value!r} is not a JSON object")
    return found


def _epilog() -> str:
    lines = [f"  {w.name:10} {w.describe()}" for w in WORKLOADS.values()]
    return "\b\nWorkloads (lengths in tokens):\n" + "\n".join(lines)


def _no_num_prompts(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Reject an option of vLLM and SGLang, and name the option to use instead."""
    if value is not None:
        raise click.UsageError(
            "--num-prompts is an option of vLLM and SGLang; here it is --scale, a factor of each workload's requests",
            ctx,
        )


_OF_FILES = ("results", "baseline", "plot", "as_json")
"""Parameters that --results goes with: it shows results, and measures nothing."""


def _refuse_measuring() -> None:
    """Refuse options of a measurement, which --results would leave without effect."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if given and param.name not in _OF_FILES:
            raise click.UsageError(
                f"--results measures nothing, so {param.opts[0]} has no effect; leave one of them out"
            )


@click.command(epilog=_epilog(), short_help="Measure an OpenAI-compatible server under a fixed workload.")
@click.option(
    "--url",
    "--base-url",
    "base_url",
    default="http://127.0.0.1:30000",
    show_default=True,
    metavar="URL",
    help="URL of the server; http:// may be left out.",
)
@click.option(
    "--workload", default=ALL, show_default=True, metavar="NAME", help="Workload of the list below, or all."
)
@click.option(
    "--rate",
    "--request-rate",
    "rates",
    type=FiniteRange(min=0, min_open=True),
    multiple=True,
    metavar="N",
    help="Send N requests a second at random times, whether or not earlier ones have been answered; repeat it for "
    "several rates.  [default: as many at a time as the workload says]",
)
@click.option(
    "--duration",
    type=FiniteRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Send requests for this long, with --rate or --trace.  [default: 60; all of a trace]",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Send the requests of a trace (Mooncake's format, or of `llmfw serve --record-requests`) at its times; "
    "with --rate, at that mean rate.",
)
@click.option(
    "--block-size",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    metavar="TOKENS",
    help="Block size of a trace that does not name one.",
)
@click.option(
    "--slo",
    "--goodput",
    "objectives",
    multiple=True,
    metavar="METRIC=MS",
    help="Count the requests per second that meet this objective and all other given ones: ttft, tpot (mean time between "
    "tokens) or e2e, in milliseconds. Repeatable.",
)
@click.option("--model", metavar="NAME", help="Model to request.  [default: the first of /v1/models]")
@click.option(
    "--api",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    show_default=True,
    help="Route to send requests to.",
)
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="API key, sent as a bearer token.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help="Number of measured runs, after one warm-up.  [default: 3; with --rate or --trace 1]",
)
@click.option(
    "--scale",
    type=FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiply the number of requests by this factor.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Seed of the prompts; the same seed sends the same prompts.  [default: drawn]",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Make prompts of exact length with the tokenizer.json of this model folder.",
)
@click.option(
    "--prompt-mode",
    type=click.Choice(["text", "ids"]),
    default="text",
    show_default=True,
    help="Send prompts as text or as token ids (multiturn: always text).",
)
@click.option(
    "--extra-body",
    callback=_json_object,
    metavar="JSON",
    help="Merge these fields into the body of each request.",
)
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Fail a request that receives no byte for this long.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all results to this file, as JSON.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show the results of a file that --output wrote, and measure nothing.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with the results of a file that --output wrote.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the latencies over the time of each run to this file (.svg, .png); needs llmfw-engine[plot].",
)
@click.option("--num-prompts", hidden=True, expose_value=False, callback=_no_num_prompts)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per workload instead of a table."
)
def bench(
    output: Path | None, results: Path | None, baseline: Path | None, plot: Path | None, **settings: Any
) -> None:
    """Measure an OpenAI-compatible server: output tokens/s, time to first token and between tokens (ms).

    Tokens are counted from the usage that the server reports. Each request asks for an exact number of output
    tokens; a request that returns fewer is counted as short. Every run has its own prompts, so none is served
    from the prefix cache of an earlier run. Exits with 1 if a request failed.
    """
    from .call import Files, call

    if results is not None:
        _refuse_measuring()
    call(Files(output, results, baseline, plot), settings)
