"""An option has one name, and a name one meaning, in all commands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from llmfw.api.cli import build_cli

SETTINGS = {
    "--max-running-requests",
    "--max-total-tokens",
    "--chunked-prefill-size",
    "--page-size",
    "--eviction",
}


def commands(command: click.Command, ctx: click.Context) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from commands(below, ctx)


def options() -> list[click.Option]:
    with click.Context(build_cli()) as ctx:
        found = [param for command in commands(ctx.command, ctx) for param in command.params]
    return [param for param in found if isinstance(param, click.Option)]


def test_a_short_option_has_one_meaning() -> None:
    long_names: dict[str, set[str]] = {}
    for option in options():
        for name in option.opts:
            if not name.startswith("--"):
                long_names.setdefault(name, set()).add(next(n for n in option.opts if n.startswith("--")))
    assert {name: longs for name, longs in long_names.items() if len(longs) > 1} == {}
    assert long_names["-o"] == {"--option"}


def test_every_command_uses_url_for_the_server() -> None:
    for option in options():
        if {"--url", "--base-url"} & {*option.opts}:
            assert option.opts == ["--url", "--base-url"]


def test_simulate_uses_serve_s_option_names() -> None:
    cli = build_cli()
    with click.Context(cli) as ctx:
        simulate = cli.get_command(ctx, "simulate")
    assert simulate is not None
    assert {name for param in simulate.params for name in param.opts} >= SETTINGS
