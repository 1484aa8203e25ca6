"""The options of `llmfw serve`: one for each field of EngineConfig and ServerConfig that a user may choose.

Each may come from the environment and from a config file, too (`setting`, `config_file`). Their defaults are the structs' own. Knows nothing of what the server does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import click
from click.core import ParameterSource

from .config_file import read_config
from .engine_settings import ENGINE_SETTINGS
from .http_settings import HTTP_SETTINGS
from .params import ApiKey, Name, PluginName, TenantName, Text, check_key, check_keys, leave_out
from .part_help import show_part
from .part_options import Assignment, collect
from .setting import Command, SettingOption, setting

Decorator = Callable[[Command], Command]

DEFAULT_MODEL = "demo"


def _debug(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["llmfw.debug"] = value == "debug"
    return value


# In the order of the help: the config file, what clients meet, limits of HTTP, the engine, logging, plugins.
_SETTINGS = (
    click.option(
        "--config",
        cls=SettingOption,
        from_elsewhere=False,
        type=Text(),
        metavar="FILE",
        envvar="LLMFW_CONFIG",
        is_eager=True,  # and the first: it brings what the others are where nobody says
        expose_value=False,
        callback=read_config,
        help="A TOML file with any of these settings, and options of parts. Default: none is read.",
    ),
    click.option(
        "--show-config",
        cls=SettingOption,
        from_elsewhere=False,
        is_flag=True,
        help="Print all settings and where each is from, as such a file, and end. Default: go on.",
    ),
    click.option(
        "--help-part",
        cls=SettingOption,
        from_elsewhere=False,
        metavar="KIND[.NAME]",
        is_eager=True,
        expose_value=False,
        callback=show_part,
        help="Print what a part is and its options, as of attention.flashinfer, and end. Default: go on.",
    ),
    setting("--host", field="host", type=Text(), help="Address to listen on."),
    setting("--port", field="port", help="TCP port; 0 takes a free one."),
    click.option(
        "--api-key",
        "api_key",
        cls=SettingOption,
        type=ApiKey(),
        metavar="[NAME=]KEY",
        multiple=True,
        callback=check_keys,
        envvar="LLMFW_API_KEY",
        show_envvar=True,
        unset="no key is asked for",
        help="Clients must send it as a bearer token; repeatable, and each name is a tenant. Default: no key is asked "
        "for.",
    ),
    setting(
        "--api-key-file",
        field="api_key_file",
        type=Text(),
        metavar="FILE",
        help="A file of keys, NAME=KEY or NAME=sha256:HEX on each line; it is read again when it changes.",
        unset="none is read",
    ),
    setting(
        "--admin-api-key",
        field="admin_api_key",
        type=ApiKey(named=False),
        callback=check_key,
        envvar="LLMFW_ADMIN_API_KEY",
        show_envvar=True,
        help="Opens /admin and everything that belongs to any tenant.",
        unset="the only API key opens /admin, or, without keys, clients on this machine do",
    ),
    setting(
        "--admin-api-key-file",
        field="admin_api_key_file",
        type=Text(),
        metavar="FILE",
        help="A file of admin keys, KEY or sha256:HEX on each line; it is read again when it changes.",
        unset="none is read",
    ),
    setting(
        "--adopt-unowned",
        field="adopt_unowned",
        type=TenantName(),
        metavar="NAME",
        help="Tenant that gets the files, batches and responses that were made without a key.",
        unset="the only tenant; if there are several, the admin key alone reaches them",
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
        metavar="DAYS",
        help="A stored conversation is removed so many days after its last response.",
    ),
    setting(
        "--response-store-mb",
        field="response_store_mb",
        help="Room for stored responses in MiB; the conversations continued longest ago go first.",
    ),
    setting(
        "--reasoning-field",
        field="reasoning_field",
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
        "--grammar-timeout",
        field="grammar_timeout",
        metavar="SECONDS",
        help="CPU time that compiling a client's grammar, schema or regex may take; a longer one is a 400.",
    ),
    setting(
        "--grammar-memory-mb",
        field="grammar_memory_mb",
        help="Memory that compiling a client's grammar may take, in MiB; one that needs more is a 400.",
    ),
    setting(
        "--grammar-workers",
        field="grammar_workers",
        help="Most processes that compile quick grammars at once; slow ones have one fewer, but at least one.",
    ),
    setting(
        "--sampling-defaults",
        field="sampling_defaults",
        help="What a request that does not say is sampled with: the values of the model's generation_config.json, "
        "or OpenAI's.",
    ),
    click.option(
        "--strict-params",
        cls=SettingOption,
        is_flag=True,
        help="Refuse requests with fields that change nothing. Default: report them in a header.",
    ),
    *HTTP_SETTINGS,
    setting(
        "--restart",
        field="restart",
        help="Whether an engine that dies or hangs is started again; requests that had not begun to answer run again.",
    ),
    setting(
        "--max-restarts-per-hour",
        field="max_restarts_per_hour",
        help="Restarts of the engine within an hour, after which the server ends with exit code 70.",
    ),
    setting(
        "--watchdog-timeout",
        field="watchdog_timeout",
        metavar="SECONDS",
        help="An engine that takes longer for one step hangs, and is killed. So is one without any sign of life for 10 "
        "seconds, or for this time if it is shorter. 0 turns the watchdog off.",
    ),
    *ENGINE_SETTINGS,
    setting(
        "--log-level",
        field="log_level",
        is_eager=True,
        callback=_debug,
        help="Least severe messages to log; debug also shows tracebacks.",
    ),
    setting(
        "--decode-log-interval",
        field="decode_log_interval",
        help="Decode steps from one line of the log to the next.",
    ),
    click.option(
        "-o",
        "--option",
        "options",
        cls=SettingOption,
        from_elsewhere=False,  # but for itself: `collect` looks there
        type=Assignment(),
        metavar="PART.KEY=VALUE",
        multiple=True,
        callback=collect,
        help="An option of a chosen part, as in attention.workspace_mb=256; repeatable. Default: the part's own.",
    ),
    click.option(
        "--no-plugin",
        "disabled_plugins",
        cls=SettingOption,
        type=PluginName(),
        unset="all that are installed are loaded",
        metavar="NAME",
        multiple=True,
        is_eager=True,
        callback=leave_out,
        help="A plugin that is not loaded; repeatable. Default: all that are installed are.",
    ),
)


_MODEL = click.option(
    "--model",
    "--model-path",
    "model_option",
    cls=SettingOption,
    metavar="MODEL",
    help=f"Another way to give MODEL. Default: {DEFAULT_MODEL}.",
)


def with_model(command: Command) -> Command:
    """Add the argument MODEL, which is an option, too, to a command; see `model_of`."""
    command = _MODEL(command)
    return click.argument("model", required=False)(command)


def model_of(model: str | None, model_option: str | None) -> str:
    """Return the model that a command line of `with_model` names; raise UsageError if it names two."""
    ctx = click.get_current_context()
    if model is not None and ctx.get_parameter_source("model_option") is not ParameterSource.COMMANDLINE:
        return model
    if model is not None and model_option is not None:
        raise click.UsageError(f"MODEL is given twice: {model!r} and --model {model_option!r}")
    given = [name for name in (model, model_option) if name is not None]
    return given[0] if given else DEFAULT_MODEL


def with_settings(command: Command) -> Command:
    """Add all options to a command, whose parameters then have the names of the structs' fields."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


def setting_options(*, without: Collection[str], flags: Collection[str] = ()) -> list[SettingOption]:
    """Return the options for a command that has others beside.

    Args:
        without: the fields that get no option.
        flags: that the command needs for itself: an option that has one keeps its other names.
    """
    options = made(_SETTINGS)
    for option in options:
        option.opts = [name for name in option.opts if name not in flags]
    return [option for option in options if option.name not in without]


def model_option() -> SettingOption:
    """Return the option that is another way to give MODEL."""
    [option] = made((_MODEL,))
    return option


def config_names() -> dict[str, str]:
    """Return each name that a setting may have in a config file, and the key of its option."""
    return {
        name.removeprefix("--"): option.key
        for option in made((_MODEL, *_SETTINGS))
        if option.from_elsewhere
        for name in option.opts
        if name.startswith("--")
    }


def made(decorators: Iterable[Decorator]) -> list[SettingOption]:
    """Return the options that decorators make."""
    holder = click.Command("settings")
    for decorator in decorators:
        decorator(holder)
    return [option for option in holder.params if isinstance(option, SettingOption)]
