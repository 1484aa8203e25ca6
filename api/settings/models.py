"""The models of `llmfw serve`: the argument MODEL, and the option `--model`, which may name several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from llmfw.core.base.setting import Declared, Setting
from llmfw.core.plugin.defaults import default_name

from .click_types import Lines
from .loaded_plugins import plugins_of
from .option import SettingOption
from .options import DEFAULT_MODEL

_MODELS = Setting(
    "The model, in place of the argument MODEL; or NAME=PATH, a further model, which clients call NAME; repeatable.",
    flag="--model",
    aliases=("--model-path",),
    unset=DEFAULT_MODEL,
    metavar="[NAME=]MODEL",
)
_NAMED = re.compile(r"(?P<name>[\w][\w./:@-]*)=(?P<path>.+)", re.DOTALL)
"""Matches NAME=PATH."""


class ModelChoice(NamedTuple):
    """A model that the command line names.

    Attributes:
        path: folder, hub id, or name of a registered model.
        name: name for clients; "": it follows from the path.
    """

    path: str
    name: str = ""


def models_option() -> SettingOption:
    """Return the option `--model` of a server that may have several models."""
    return SettingOption(Declared("model_option", tuple[str, ...], (), _MODELS), type=Lines(), multiple=True)


def models_of(model: str | None, given: Sequence[str]) -> list[ModelChoice]:
    """Return the models of a server, the first one first.

    A model without a name is the first. Without one, and without the argument, the first one with a name is.

    Args:
        model: the argument MODEL, or None. It takes precedence over environment and config file.
        given: values of `--model`.

    Raises:
        UsageError: a model is not NAME=PATH, or two have no name or the same one.
    """
    ctx = click.get_current_context()
    choices = [_choice(text) for text in given]
    bare = [choice.path for choice in choices if not choice.name]
    named = [choice for choice in choices if choice.name]
    if model is not None and ctx.get_parameter_source("model_option") is not ParameterSource.COMMANDLINE:
        bare = [model]
    elif model is not None:
        bare.insert(0, model)
    if len(bare) > 1:
        raise click.UsageError(
            f"MODEL is given twice: {bare[0]!r} and --model {bare[1]!r}; to serve both, write --model NAME={bare[1]}"
        )
    names = [choice.name for choice in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise click.UsageError(f"--model names {twice!r} twice; give each model a name of its own")
    if not bare and not named:
        bare = [default_name(plugins_of(ctx).registry, "model", DEFAULT_MODEL)]
    return [*(ModelChoice(path) for path in bare), *named]


def _choice(text: str) -> ModelChoice:
    """Return the model in PATH or NAME=PATH. The path of a folder may have "="."""
    found = _NAMED.fullmatch(text)
    if Path(text).exists() or (found is None and ("=" not in text or text.startswith((".", "~", "/")))):
        return ModelChoice(text)
    if found is None:
        raise click.UsageError(
            f"--model is {text!r:.200}; write NAME=PATH, with a name of letters, digits and ._:/@-, which starts with "
            "a letter, a digit or _"
        )
    return ModelChoice(found["path"], found["name"])
