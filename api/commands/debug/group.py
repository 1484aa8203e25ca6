"""The command group `llmfw debug`, for finding and reporting faults in llmfw."""

from __future__ import annotations

import click

from llmfw.core.interfaces.lazy_command import LazyCommand

from ..lazy_group import LazyGroup

_COMMANDS = (
    ("replay", "replay:replay_command", "Compute recorded steps again, and compare the tokens."),
    ("bundle", "bundle:bundle_command", "Pack crash reports and a server's facts for a bug report."),
)


@click.group("debug", cls=LazyGroup, short_help="Find a fault, and pack a bug report.")
def debug_group() -> None:
    """Find a fault in llmfw, and report it.

    `llmfw serve --record-steps FILE` writes every step; `llmfw debug replay FILE` computes them again. `llmfw debug
    bundle` packs crash reports and what else a bug report needs.
    """


for _name, _path, _summary in _COMMANDS:
    debug_group.add_command(LazyCommand(_name, f"{__package__}.{_path}", _summary))
