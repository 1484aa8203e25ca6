"""The options of `llmfw simulate`. Imports click alone; what does the work is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

_POSITIVE = click.IntRange(min=1)


def _assignments(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the assignments `policy.key=value` of an option as a mapping."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.startswith("policy.") and equals):
            raise click.BadParameter(f"{text!r} is not policy.key=value")
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
    default=("lpm",),
    show_default=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="Scheduling policy, with options of its own; repeatable.",
)
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    callback=_assignments,
    metavar="policy.KEY=VALUE",
    help="An option of all the policies; repeatable.",
)
@click.option(
    "--profile",
    default="8b-h200",
    show_default=True,
    metavar="NAME|FILE",
    help="What steps cost: 8b-h200, 8b-h100, 70b-8xh200, or a file that --fit has written.",
)
@click.option(
    "--kv-tokens",
    type=_POSITIVE,
    default=800_000,
    show_default=True,
    help="Tokens for which a replica has KV storage.",
)
@click.option("--page-size", type=_POSITIVE, default=16, show_default=True, help="Tokens in one page of it.")
@click.option(
    "--max-running", type=_POSITIVE, default=512, show_default=True, help="Most sequences in one step."
)
@click.option(
    "--chunk", type=_POSITIVE, default=8192, show_default=True, help="Most prompt tokens in one step."
)
@click.option(
    "--prefill-stretch",
    "stretch",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="TIMES",
    help="As of `llmfw serve`: bounds steps with a piece of a prompt that is longer than a step; 0: any time.",
)
@click.option(
    "--eviction",
    default="lru",
    show_default=True,
    metavar="RULE",
    help="By which prefixes leave the cache: lru, lfu or size.",
)
@click.option("--replicas", type=_POSITIVE, default=1, show_default=True, help="Engines that share the load.")
@click.option(
    "--router",
    type=click.Choice(["round-robin", "load", "prefix"]),
    default="prefix",
    show_default=True,
    help="How they share it: in turns; by the fewest tokens; by the longest cached prefix.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Requests come so many times as fast as in the trace.",
)
@click.option("--limit", type=_POSITIVE, metavar="N", help="Replay the first N requests of the file only.")
@click.option(
    "--block-size",
    type=_POSITIVE,
    default=512,
    show_default=True,
    help="Tokens in a block of the trace, where its lines do not say.",
)
@click.option("--infinite", is_flag=True, help="Print the hit rate of an infinite cache, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per policy instead of a table.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Write a picture of the comparison (needs llmfw-engine[plot]).",
)
@click.option(
    "--fit",
    metavar="MODEL",
    help="Measure a model on this machine, with the settings of `llmfw serve MODEL`, and write its profile.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Where --fit writes the profile."
)
@click.option(
    "--fit-rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often --fit measures each kind of step: fewer are sooner done, more are surer.",
)
def simulate(trace: Path | None, fit: str | None, save: Path | None, fit_rounds: int, **values: Any) -> None:
    """Replay TRACE in virtual time: the real scheduler, prefix cache and policy, and a cost model for a model.

    TRACE has one JSON object a line, in Mooncake's format or as `llmfw serve --record-requests` writes it. Prints
    hit rate, time to first token and between tokens, output tokens/s, retractions and waits, for each policy.
    """
    if (fit is None) != (save is None):
        raise click.UsageError("--fit MODEL and --save FILE go together")
    if fit is not None and save is not None:
        _check_alone(click.get_current_context())
        from . import session

        session.fit(fit, save, fit_rounds)
    elif trace is not None:
        from . import session

        session.simulate(trace, session.Settings(**values))
    else:
        raise click.UsageError("give a TRACE to replay, or --fit MODEL to measure one")


def _check_alone(ctx: click.Context) -> None:
    """Raise UsageError for what means nothing beside `--fit`."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if given and param.name not in ("fit", "save", "fit_rounds"):
            raise click.UsageError(
                f"--fit takes no {param.opts[0]}: it measures, and replays nothing; use --profile FILE afterwards"
            )
