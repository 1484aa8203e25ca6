"""The options of `llmfw simulate`. Imports only click; the command imports the rest when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.terminal.finite_range import FiniteRange

DEFAULT_POLICY = "lpm"
DEFAULT_ROUTER = "prefix"
MOST_REPLICAS = 64
"""Largest number of replicas that --slo tries without --replicas."""
_POSITIVE = click.IntRange(min=1)


def _assignments(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse an option's assignments `kind.key=value`; return a mapping from `kind.key` to value."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.startswith(("policy.", "router.", "eviction.")) and equals):
            raise click.BadParameter(
                f"{text!r} is not policy.key=value, router.key=value or eviction.key=value"
            )
        if key in options:
            raise click.BadParameter(f"{key!r} is given twice: {options[key]!r} and {value!r}")
        options[key] = value
    return options


@click.command(short_help="Replay a trace of requests without a model, to judge a policy.")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=(DEFAULT_POLICY,),
    show_default=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="Scheduling policy with its options; repeatable.",
)
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    callback=_assignments,
    metavar="KIND.KEY=VALUE",
    help="Set an option of all policies, routers or eviction rules, as in policy.max_overtaken=8; repeatable.",
)
@click.option(
    "--profile",
    default="8b-h200",
    show_default=True,
    metavar="NAME|FILE",
    help="Cost of steps: 8b-h200, 8b-h100, 70b-8xh200, or a file that --fit has written.",
)
@click.option(
    "--max-total-tokens",
    "kv_tokens",
    type=_POSITIVE,
    metavar="N",
    default=800_000,
    show_default=True,
    help="Size of the KV cache of a replica, in tokens.",
)
@click.option(
    "--page-size",
    type=_POSITIVE,
    metavar="N",
    help="Tokens per page of the KV cache.  [default: that of the server that recorded the trace, else 16]",
)
@click.option(
    "--max-running-requests",
    "max_running",
    type=_POSITIVE,
    default=512,
    show_default=True,
    metavar="N",
    help="Maximum number of sequences in a step.",
)
@click.option(
    "--chunked-prefill-size",
    "chunk",
    type=_POSITIVE,
    default=8192,
    show_default=True,
    metavar="N",
    help="Maximum number of prompt tokens in a step.",
)
@click.option(
    "--prefill-stretch",
    "stretch",
    type=FiniteRange(min=0),
    default=0.0,
    show_default=True,
    metavar="TIMES",
    help="While others decode, keep a step with a piece of a long prompt within this many times the duration of one "
    "without; 0: no limit.",
)
@click.option(
    "--eviction",
    default="lru",
    show_default=True,
    metavar="RULE",
    help="Rule by which prefixes leave the cache, such as lru, lfu, size or ttl.",
)
@click.option(
    "--replicas",
    type=_POSITIVE,
    default=1,
    show_default=True,
    metavar="N",
    help="Number of engines that share the load. With --slo, the largest number to try.",
)
@click.option(
    "--router",
    "routers",
    multiple=True,
    default=(DEFAULT_ROUTER,),
    show_default=True,
    metavar="NAME",
    help="Router that chooses the engine of each request, as for `llmfw serve`; repeatable.",
)
@click.option(
    "--slo",
    "objective",
    metavar="METRIC=LIMIT",
    help="Find how many replicas, up to --replicas or else 64, keep a metric within a limit, as in ttft_p95=500ms, and "
    "what one fewer does.",
)
@click.option(
    "--speed",
    type=FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Replay requests this many times as fast as in the trace.",
)
@click.option("--limit", type=_POSITIVE, metavar="N", help="Replay only the first N requests.")
@click.option(
    "--block-size",
    type=_POSITIVE,
    default=512,
    show_default=True,
    help="Tokens in a block of the trace, if its lines do not say.",
)
@click.option("--infinite", is_flag=True, help="Also print the hit rate of an infinite cache.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per policy instead of a table.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Plot the comparison to this file (needs llmfw-engine[plot]).",
)
@click.option(
    "--fit",
    metavar="MODEL",
    help="Measure MODEL on this machine with the settings of `llmfw serve MODEL`, and write its profile to --save.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="File for the profile of --fit."
)
@click.option(
    "--fit-rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Number of times that --fit measures each kind of step. More take longer, and are more accurate.",
)
def simulate(trace: Path | None, fit: str | None, save: Path | None, fit_rounds: int, **values: Any) -> None:
    """Replay TRACE in virtual time, with the real scheduler, prefix cache and policy.

    A cost model gives the duration of each step in place of a real model. TRACE has one JSON object per line,
    in Mooncake's format or as `llmfw serve --record-requests` writes it. Prints the hit rate, time to first
    token, time between tokens, output tokens/s, retractions and waits for each policy.
    """
    if (fit is None) != (save is None):
        raise click.UsageError("--fit MODEL and --save FILE go together")
    if fit is not None and save is not None:
        _check_alone(click.get_current_context())
        from . import session

        session.fit(fit, save, fit_rounds)
    elif trace is not None:
        from . import session
        from .objective import Objective
        from .settings import Settings

        def is_default(option: str) -> bool:
            return click.get_current_context().get_parameter_source(option) is ParameterSource.DEFAULT

        if is_default("policies"):
            values["policies"] = (session.bundled(DEFAULT_POLICY),)
        if values["objective"] is not None:
            values["objective"] = Objective.parse(values["objective"])
            values["replicas"] = MOST_REPLICAS if is_default("replicas") else values["replicas"]
        session.simulate(trace, Settings(**values))
    else:
        raise click.UsageError("give a TRACE to replay, or --fit MODEL to measure one")


def _check_alone(ctx: click.Context) -> None:
    """Raise UsageError if an option is given that has no effect together with `--fit`."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if given and param.name not in ("fit", "save", "fit_rounds"):
            raise click.UsageError(
                f"--fit takes no {param.opts[0]}: it measures, and replays nothing; use --profile FILE afterwards"
            )
