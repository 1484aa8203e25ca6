"""`llmfw debug replay`: computes recorded steps again, and compares the tokens."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llmfw.api.settings.loaded_plugins import plugins_of

MOST_SHOWN = 10
"""Maximum number of differing steps to print."""


@click.command("replay", short_help="Compute recorded steps again, and compare the tokens.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--model", metavar="MODEL", help="Folder or name of the model. Default: the recorded one.")
@click.option("--attention", metavar="NAME", help="Attention backend. Default: the recorded one.")
@click.option("--device", metavar="DEVICE", help="Device to compute on. Default: the recorded one.")
@click.pass_context
def replay_command(
    ctx: click.Context, file: Path, model: str | None, attention: str | None, device: str | None
) -> None:
    """Compute the steps of FILE again, and compare the tokens.

    `llmfw serve --record-steps FILE` writes the file, which contains the token ids of prompts and outputs.
    The exit code is 1 if any token differs, or if the file is damaged or incomplete.
    """
    from llmfw.core.engine.generation.replay import replay
    from llmfw.core.plugin.model_name import resolve_model

    registry = plugins_of(ctx).registry
    changes: dict[str, object] = {"attention": attention, "device": device}
    if model is not None:
        changes["model"] = resolve_model(model, registry).path
    changes = {name: value for name, value in changes.items() if value}
    if attention is not None:
        changes["prefill_attention"] = None  # the named backend computes prefill, too
    num_steps = num_tokens = num_differing = 0
    for replayed in replay(file, registry, **changes):
        num_steps += 1
        num_tokens += len(replayed.token_ids)
        differences = replayed.differences
        num_differing += bool(differences)
        if differences and num_differing <= MOST_SHOWN:
            for row, before, now in differences:
                click.echo(f"step {replayed.number}, row {row}: recorded token {before}, computed {now}")
    click.echo(f"{num_steps} steps, {num_tokens} tokens: {_verdict(num_differing)}")
    sys.exit(num_differing > 0)


def _verdict(num_differing: int) -> str:
    if not num_differing:
        return "all equal"
    return f"{num_differing} {'step differs' if num_differing == 1 else 'steps differ'}"
