"""`llmfw serve`: the command line becomes an EngineConfig and a ServerConfig, and the server is started.

Its options are in `settings`. Knows nothing of how to serve: `api.serve` does, and is imported when all is checked.
"""

from __future__ import annotations

import os
from typing import Any

import click

from llmfw.core.config import EngineConfig, ServerConfig
from llmfw.core.model import ResolvedModel, resolve_model

from .params import plugins_of
from .settings import model_of, with_model, with_settings


@click.command("serve")
@with_model
@with_settings
def serve_command(model: str | None, model_option: str | None, **values: Any) -> None:
    """Serve MODEL to OpenAI clients.

    MODEL is the name of a registered model (default: demo, which comes with llmfw), a folder in the layout of
    transformers, or a hub id.
    """
    name = model_of(model, model_option)
    plugins = plugins_of(click.get_current_context())
    for broken in plugins.broken:
        click.echo(f"warning: {broken}", err=True)
    resolved = resolve_model(name, plugins.registry)
    engine_config, server_config = build_configs(resolved, values)
    from ..serve import serve  # brings Litestar

    serve(engine_config, server_config, plugins)


def build_configs(model: ResolvedModel, values: dict[str, Any]) -> tuple[EngineConfig, ServerConfig]:
    """Return the two configs of a command line.

    Args:
        model: what the model's name stands for.
        values: of the options, by the names of the structs' fields.
    """
    values = dict(values)
    values["model"] = model.path
    values["served_model_name"] = values["served_model_name"] or model.served_name
    values["overlap"] = False if values.pop("disable_overlap_schedule") else None
    if values["random_seed"] is None:
        values["random_seed"] = int.from_bytes(os.urandom(4)) >> 1
    for parser in ("tool_parser", "reasoning_parser"):
        chosen = values[parser] or getattr(model, parser)
        values[parser] = None if chosen == "none" else chosen
    return _fill(EngineConfig, values), _fill(ServerConfig, values)


def _fill(struct: Any, values: dict[str, Any]) -> Any:
    return struct(**{name: values[name] for name in struct.__struct_fields__ if name in values})
