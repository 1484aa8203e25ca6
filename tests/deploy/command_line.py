"""Command lines of files for operators, read by llmfw's own parser."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.cli import build_cli
from llmfw.api.settings.environment import warning_of
from llmfw.api.settings.options import model_option, setting_options

FOLDER = Path(__file__).parents[2] / "docs" / "deploy"
DRAIN_MARGIN_S = 15
"""Seconds to end after --drain-timeout, as docs/operations.md says."""


def settings_of(words: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what `llmfw` with these arguments and variables would run with, by the names of its parameters.

    Args:
        words: the arguments: a command without subcommands, and its options.
        environment: variables of the process; those whose names start with LLMFW_ must be known.

    Raises:
        click.UsageError: the command line or a variable is wrong.
    """
    environment = environment or {}
    assert warning_of(environment, [model_option(), *setting_options()]) is None
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LLMFW_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        cli = build_cli()
        with cli.make_context("llmfw", list(words[:1])) as ctx:
            command = cli.get_command(ctx, words[0])
            assert command is not None, words
            return command.make_context(words[0], list(words[1:]), parent=ctx).params


def seconds(text: str) -> float:
    """Return the duration that "45s" or "10m" means."""
    found = re.fullmatch(r"(\d+)(s|m|)", text)
    assert found is not None, text
    return int(found[1]) * (60 if found[2] == "m" else 1)
