"""`llmfw serve`: converts the command line to an EngineConfig and a ServerConfig, and starts the server.

The options are in `api.settings`. The server is in `api.app`, which is imported once all options are checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from llmfw.api.settings.command import SettingsCommand
from llmfw.api.settings.component_options import OPTIONS, naming_sources
from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.api.settings.models import models_of, models_option
from llmfw.api.settings.options import setting_options
from llmfw.api.settings.shown_config import shown_config
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.plugin.model_name import ResolvedModel, resolve_model

from .several_models import check_several, further_model, named

EPILOG = """Every option may also be set in the environment, as in LLMFW_PORT=8000, LLMFW_MAX_RUNNING_REQUESTS=64 or
LLMFW_ATTENTION__WORKSPACE_MB=256, or in a TOML file by --config. The command line takes precedence over the environment,
and the environment over the file."""


_DERIVED = ("served_model_name", "random_seed", "tool_parser", "reasoning_parser")
"""Settings that `build_configs` chooses if the user does not."""


@click.command("serve", cls=SettingsCommand, epilog=EPILOG, params=[models_option(), *setting_options()])
@click.argument("model", required=False)
def serve_command(model: str | None, model_option: Sequence[str], show_config: bool, **values: Any) -> None:
    """Serve MODEL to OpenAI clients.

    MODEL is a folder in the layout of transformers, a hub id, or the name of a registered model (default:
    demo, a small model that comes with llmfw). With --model NAME=PATH, further models are served next to it.
    """
    ctx = click.get_current_context()
    first, *others = models_of(model, model_option)
    if show_config:
        click.echo(shown_config(ctx, [first, *others]), nl=False)
        return
    plugins = plugins_of(ctx)
    for broken in plugins.broken:
        click.echo(f"warning: {broken}", err=True)
    with naming_sources(ctx.meta[OPTIONS]):
        resolved = named(resolve_model(first.path, plugins.registry, values["options"]), first)
        configs = [build_configs(resolved, values)]
        configs += [build_configs(*further_model(each, values, plugins.registry)) for each in others]
        check_several([server.served_model_name for _, server in configs], values)
        from llmfw.api.app.launched_models import ModelSettings
        from llmfw.api.app.serve import serve  # imports Litestar
        from llmfw.api.server.announcement import Given

        derived = frozenset(field for field in _DERIVED if values[field] is None)
        given = Given(first.path, derived, tuple(f"{each.name}={each.path}" for each in others))
        exit_code = serve([ModelSettings(*each) for each in configs], plugins, given)
    ctx.exit(exit_code)


def build_configs(model: ResolvedModel, values: dict[str, Any]) -> tuple[EngineConfig, ServerConfig]:
    """Return the two configs of a command line.

    Args:
        model: the model that the command line names.
        values: values of the options: field of a config struct → value.
    """
    values = dict(values)
    values["model"] = model.path
    values["served_model_name"] = values["served_model_name"] or model.served_name
    if values["random_seed"] is None:
        values["random_seed"] = int.from_bytes(os.urandom(4)) >> 1
    for parser in ("tool_parser", "reasoning_parser"):
        chosen = values[parser] or getattr(model, parser)
        values[parser] = None if chosen == "none" else chosen
    return _fill(EngineConfig, values), _fill(ServerConfig, values)


def _fill(struct: Any, values: dict[str, Any]) -> Any:
    return struct(**{name: values[name] for name in struct.__struct_fields__ if name in values})
