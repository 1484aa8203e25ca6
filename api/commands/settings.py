"""The options of `llmfw serve`: one for each field of EngineConfig and ServerConfig that a user may choose.

Their defaults are the structs' own. Knows nothing of what the server does with them.
"""

from __future__ import annotations

from collections.abc import Collection

import click

from .engine_settings import ENGINE_SETTINGS
from .params import (
    ApiKey,
    Assignment,
    FiniteRange,
    Name,
    Text,
    collect,
    leave_out,
    name_keys,
)
from .setting import Command, positive, setting

DEFAULT_MODEL = "demo"
LOG_LEVELS = ("debug", "info", "warning", "error")


def _debug(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["llmfw.debug"] = value == "debug"
    return value


# In the order of the help: what clients meet, the engine, logging, plugins.
_SETTINGS = (
    setting("--host", field="host", type=Text(), help="Address to listen on."),
    setting("--port", field="port", type=click.IntRange(0, 65535), help="TCP port; 0 takes a free one."),
    click.option(
        "--api-key",
        "api_key",
        type=ApiKey(),
        metavar="[NAME=]KEY",
        multiple=True,
        callback=name_keys,
        envvar="LLMFW_API_KEY",
        show_envvar=True,
        help="Clients must send it as a bearer token; repeatable, and each name is a tenant. Default: no key is asked "
        "for.",
    ),
    setting(
        "--admin-api-key",
        field="admin_api_key",
        type=Text(),
        envvar="LLMFW_ADMIN_API_KEY",
        show_envvar=True,
        help="Opens /admin, which no other key does then.",
        unset="any API key does, or, where there is none, clients on this machine",
    ),
    setting(
        "--served-model-name", field="served_model_name", type=Text(), help="Name for clients.", unset="MODEL"
    ),
    setting(
        "--chat-template",
        field="chat_template",
        type=Name("chat_template", or_file=True),
        help="How messages become a prompt: a registered template, or a Jinja file.",
        unset="the model's own",
    ),
    setting(
        "--tool-parser",
        "--tool-call-parser",
        field="tool_parser",
        type=Name("tool_parser", also=("none",)),
        help="Finds tool calls in the text.",
        unset="the one that the model's source names, or none",
    ),
    setting(
        "--reasoning-parser",
        field="reasoning_parser",
        type=Name("reasoning_parser", also=("none",)),
        help="Splits off the reasoning.",
        unset="the one that the model's source names, or none",
    ),
    setting(
        "--storage",
        "--file-storage-pth",
        field="storage",
        type=Text(),
        metavar="DIR",
        help="Folder for what has to survive a restart: files, batches, responses; made if it is not there.",
        unset="they end with the server",
    ),
    setting(
        "--file-store",
        field="file_store",
        type=Name("file_store", also=("auto",)),
        help="What keeps uploaded files; auto takes sqlite with --storage, else memory.",
    ),
    setting(
        "--batch-store",
        field="batch_store",
        type=Name("batch_store", also=("auto",)),
        help="What keeps batch jobs; auto takes sqlite with --storage, else memory.",
    ),
    setting(
        "--response-store",
        field="response_store",
        type=Name("response_store", also=("auto",)),
        help="What keeps responses; auto takes sqlite with --storage, else memory.",
    ),
    setting(
        "--response-ttl",
        field="response_ttl_days",
        type=FiniteRange(0, min_open=True),
        metavar="DAYS",
        help="A stored conversation is removed so many days after its last response.",
    ),
    setting(
        "--response-store-mb",
        field="response_store_mb",
        type=positive(),
        help="Room for stored responses in MiB; the conversations continued longest ago go first.",
    ),
    setting(
        "--reasoning-field",
        field="reasoning_field",
        type=click.Choice(("reasoning_content", "reasoning", "both")),
        help="Where replies have the reasoning; both names are read in messages.",
    ),
    setting(
        "--grammar",
        "--grammar-backend",
        field="grammar",
        type=Name("grammar", also=("auto", "none")),
        help="Backend of structured output; auto takes the best installed one, none refuses such requests.",
    ),
    setting(
        "--sampling-defaults",
        field="sampling_defaults",
        type=click.Choice(("model", "openai")),
        help="What a request that does not say is sampled with: the values of the model's generation_config.json, "
        "or OpenAI's.",
    ),
    click.option(
        "--strict-params",
        is_flag=True,
        help="Refuse requests with fields that change nothing. Default: report them in a header.",
    ),
    *ENGINE_SETTINGS,
    setting(
        "--log-level",
        field="log_level",
        type=click.Choice(LOG_LEVELS),
        is_eager=True,
        callback=_debug,
        help="Least severe messages to log; debug also shows tracebacks.",
    ),
    setting(
        "--decode-log-interval",
        field="decode_log_interval",
        type=positive(),
        help="Decode steps from one line of the log to the next.",
    ),
    click.option(
        "-o",
        "--option",
        "options",
        type=Assignment(),
        metavar="PART.KEY=VALUE",
        multiple=True,
        callback=collect,
        help="An option of a chosen part, as in attention.workspace_mb=256; repeatable. Default: the part's own.",
    ),
    click.option(
        "--no-plugin",
        "disabled_plugins",
        metavar="NAME",
        multiple=True,
        is_eager=True,
        callback=leave_out,
        help="A plugin that is not loaded; repeatable. Default: all that are installed are.",
    ),
)


def with_model(command: Command) -> Command:
    """Add the argument MODEL, which is an option, too, to a command; see `model_of`."""
    command = click.option(
        "--model",
        "--model-path",
        "model_option",
        metavar="MODEL",
        help=f"Another way to give MODEL. Default: {DEFAULT_MODEL}.",
    )(command)
    return click.argument("model", required=False)(command)


def model_of(model: str | None, model_option: str | None) -> str:
    """Return the model that a command line of `with_model` names; raise UsageError if it names two."""
    if model is not None and model_option is not None:
        raise click.UsageError(f"MODEL is given twice: {model!r} and --model {model_option!r}")
    given = [name for name in (model, model_option) if name is not None]
    return given[0] if given else DEFAULT_MODEL


def with_settings(command: Command) -> Command:
    """Add all options to a command, whose parameters then have the names of the structs' fields."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def setting_options(*, without: Collection[str], flags: Collection[str] = ()) -> list[click.Option]:
    """Return the options for a command that has others beside.

    Args:
        without: the fields that get no option.
        flags: that the command needs for itself: an option that has one keeps its other names.
    """
    holder = click.Command("settings")
    for option in _SETTINGS:
        option(holder)
    for parameter in holder.params:
        parameter.opts = [name for name in parameter.opts if name not in flags]
    return [p for p in holder.params if isinstance(p, click.Option) and p.name not in without]
