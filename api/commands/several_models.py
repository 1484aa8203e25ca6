"""The settings of the models of `llmfw serve` after the first, and what several models cannot be combined with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.api.settings.models import ModelChoice
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.model_name import ResolvedModel, resolve_model
from llmfw.core.plugin.registry import Registry

OF_THE_FIRST = ("chat_template", "tool_parser", "reasoning_parser")
"""Settings that belong to one model. With several models, they are for the first one."""

REFUSED = {
    "replicas": "--replicas",
    "max_replicas": "--max-replicas",
    "adapters": "--adapter",
    "max_adapters": "--max-adapters",
    "tp": "--tp",
}
"""Settings that a server with several models refuses, and their flags."""
_NONE = (None, 0, 1, ())
"""Values of these settings that ask for nothing."""


def named(model: ResolvedModel, choice: ModelChoice) -> ResolvedModel:
    """Return a resolved model with the name that the command line gives it, if it gives one."""
    if not choice.name:
        return model
    return ResolvedModel(model.path, choice.name, model.tool_parser, model.reasoning_parser)


def further_model(
    choice: ModelChoice, values: dict[str, Any], registry: Registry
) -> tuple[ResolvedModel, dict[str, Any]]:
    """Return a model after the first, and the values of the options for it.

    Args:
        values: values of the options: field of a config struct → value.

    Raises:
        ConfigError: there is no such model.
    """
    own = {
        key: value
        for key, value in values["options"].items()
        if key.partition(".")[0] not in ("model", *OF_THE_FIRST)
    }
    of_first = dict.fromkeys((*OF_THE_FIRST, "served_model_name"))
    return named(resolve_model(choice.path, registry, {}), choice), values | of_first | {"options": own}


def check_several(names: Sequence[str], values: dict[str, Any]) -> None:
    """Check that several models can be served together with these settings.

    Args:
        names: served names of the models.

    Raises:
        ConfigError: two models have the same name, or a setting is for a server with one model.
    """
    if len(names) == 1:
        return
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two models are called {twice!r}; name one of them by --model NAME=PATH")
    for field, flag in REFUSED.items():
        if values[field] not in _NONE:
            raise ConfigError(
                f"{flag} is given, and there are {len(names)} models, which have one engine of one process each and no adapters; leave it "
                "out, or start a server for each model"
            )
