"""The options of `llmfw serve`: one for each field of EngineConfig and ServerConfig that a user may choose.

Their defaults are the structs' own. Knows nothing of what the server does with them.
"""

from __future__ import annotations

from collections.abc import Collection

import click

from llmfw.core.cache.eviction import EVICTIONS

from .params import (
    ApiKey,
    Assignment,
    ChunkSize,
    Device,
    FiniteRange,
    Name,
    Names,
    Text,
    collect,
    leave_out,
    name_keys,
)
from .setting import Command, positive, setting

DEFAULT_MODEL = "demo"
GRAPH_SIZE = "Most sequences in a captured step; 0: none is captured."
LOG_LEVELS = ("debug", "info", "warning", "error")


def _debug(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["llmfw.debug"] = value == "debug"
    return value


# In the order of the help: what clients meet, parts, device, memory, scheduling, logging, plugins.
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
    setting(
        "--attention",
        "--attention-backend",
        field="attention",
        type=Name("attention", also=("auto",)),
        help="Attention backend; auto takes the best one that can serve the model.",
    ),
    setting(
        "--module-passes",
        field="module_passes",
        type=Names("module_pass", also=("auto", "none")),
        help="What puts faster modules into the model; auto takes all that can work on the device.",
    ),
    setting(
        "--policy",
        "--schedule-policy",
        field="policy",
        type=Name("policy"),
        help="Order in which waiting requests are admitted.",
    ),
    setting(
        "--task",
        field="task",
        type=click.Choice(("auto", "generate", "embed")),
        help="Generate text, or make embeddings; auto does what the model's files are for.",
    ),
    setting(
        "--dtype",
        field="dtype",
        type=click.Choice(("auto", "float32", "bfloat16", "float16")),
        help="Type of weights and activations; auto takes the checkpoint's where the device is fast with it.",
    ),
    setting(
        "--device",
        field="device",
        type=Device(),
        help="auto, cpu, cuda, cuda:1; auto takes cuda if it is there.",
    ),
    setting(
        "--load-format",
        field="load_format",
        type=click.Choice(("auto", "dummy")),
        help="auto reads safetensors; dummy draws random weights from the config alone.",
    ),
    setting(
        "--context-length",
        field="context_length",
        type=positive(),
        help="Longest sequence in tokens, prompt and output together.",
        unset="the model's own",
    ),
    setting(
        "--mem-fraction-static",
        field="mem_fraction_static",
        type=FiniteRange(0, 1, min_open=True),
        help="Share of the device's memory for weights and KV storage, from 0 to 1.",
    ),
    setting(
        "--max-total-tokens",
        field="max_total_tokens",
        type=positive(),
        help="Size of the KV storage in tokens.",
        unset="what the memory share allows",
    ),
    setting("--page-size", field="page_size", type=positive(), help="Tokens in one page of the KV storage."),
    setting(
        "--max-running-requests",
        field="max_running_requests",
        type=positive(),
        help="Most sequences in one step.",
    ),
    setting(
        "--max-queued-requests",
        field="max_queued_requests",
        type=positive(),
        help="Where so many requests wait, another one is refused with 503.",
        unset="any number may",
    ),
    setting(
        "--max-queued-tokens",
        field="max_queued_tokens",
        type=positive(),
        help="As --max-queued-requests, by the tokens of the prompts that wait.",
        unset="any number may",
    ),
    setting(
        "--max-tenant-requests",
        field="max_tenant_requests",
        type=positive(),
        help="Most requests of one tenant, a named API key or a user; another one is refused with 429.",
        unset="any number",
    ),
    setting(
        "--chunked-prefill-size",
        field="chunked_prefill_size",
        type=ChunkSize(),
        help="Most prompt tokens in one step; -1 never cuts prompts.",
    ),
    setting(
        "--max-prefill-tokens",
        field="max_prefill_tokens",
        type=positive(),
        help="Most prompt tokens in one step when prompts are not cut.",
    ),
    setting(
        "--prefill-stretch",
        field="prefill_stretch",
        type=FiniteRange(0),
        metavar="TIMES",
        help="A step in which others decode takes at most so many times as long for a prompt that is longer than a "
        "step; 0: any time.",
    ),
    setting(
        "--schedule-conservativeness",
        field="schedule_conservativeness",
        type=FiniteRange(0, min_open=True),
        help="Factor on the estimate of tokens still to come; higher means fewer retractions.",
    ),
    click.option(
        "--disable-radix-cache",
        "disable_radix_cache",
        is_flag=True,
        help="Never reuse the keys and values of a common prefix. Default: reuse them.",
    ),
    setting(
        "--eviction",
        field="eviction",
        type=click.Choice(tuple(EVICTIONS)),
        help="Which prefixes leave the cache first when room is needed: those used longest ago (lru), least often (lfu), "
        "or least often for their size (size).",
    ),
    click.option(
        "--disable-overlap-schedule",
        is_flag=True,
        help="Do not plan the next step while one runs. Default: by device.",
    ),
    setting(
        "--cuda-graph",
        field="cuda_graph",
        type=click.Choice(("on", "lazy", "off")),
        help="Capture decode steps on a GPU: on, before the server answers; lazy, each size when it is first met.",
    ),
    setting(
        "--cuda-graph-max-bs", field="cuda_graph_max_bs", type=click.IntRange(0), help=GRAPH_SIZE, unset="512"
    ),
    setting(
        "--stream-interval",
        field="stream_interval",
        type=positive(),
        help="Tokens in one event of a stream; more cost less of the processor's time, and come less often.",
    ),
    setting(
        "--batch-share",
        field="batch_share",
        type=FiniteRange(0, 1),
        metavar="SHARE",
        help="Part of each step that batch jobs may take beside live requests, from 0 (only what these leave) to 1.",
    ),
    setting(
        "--record-requests",
        field="record_requests",
        type=Text(),
        metavar="FILE",
        help="Write when requests came and how long they were, for `llmfw simulate`; no text can be read from it.",
        unset="nothing is recorded",
    ),
    click.option(
        "--random-seed",
        type=click.IntRange(0, 2**63 - 1),
        help="Seed of requests that bring none. Default: drawn at each start.",
    ),
    setting(
        "--trace-requests",
        field="trace_requests",
        type=click.IntRange(0),
        metavar="N",
        help="Keep what is decided about the last N requests, for 'llmfw trace', and log it at level debug; 0: nothing.",
    ),
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
