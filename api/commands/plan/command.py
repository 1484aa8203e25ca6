"""`llmfw plan`: prints whether a model fits on a GPU, and how many requests fit with it.

Needs no GPU and no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from llmfw.api.settings.click_types import WholeNumber
from llmfw.api.settings.command import SettingsCommand
from llmfw.api.settings.component_options import collect
from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.api.settings.options import like, model_of, model_option
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.model.files.model_folder import model_files
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.terminal.tables import Column, print_table

from .choices import ADAPTER_RANK, CHUNK, DTYPE_BYTES, FRACTION, MAX_RUNNING
from .devices import GIB, Device, DeviceType

SCHEME = "quantization_scheme"


def _scheme_options(
    ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]
) -> dict[str, OptionValue]:
    """Return the component options; callback of `-o`. Refuse options that do not affect memory."""
    for key, _ in pairs:
        if not key.startswith(f"{SCHEME}."):
            raise click.BadParameter(
                f"{key!r} is for another component; llmfw plan has options of the quantization scheme only",
                ctx,
                param,
            )
    return collect(ctx, param, pairs)


@click.command(
    "plan",
    cls=SettingsCommand,
    short_help="Say whether a model fits on a GPU, and how many requests with it.",
    params=[
        model_option(),
        click.Option(
            ["--device"],
            type=DeviceType(),
            required=True,
            help="GPU by its name, or a name of your own and its memory.",
        ),
        like("dtype", about="Type of weights and activations; auto: the checkpoint's."),
        like("quantization"),
        like(
            "options",
            callback=_scheme_options,
            about="Set an option of the quantization scheme, as in quantization_scheme.KEY=VALUE; repeatable.",
        ),
        like(
            "kv_cache_dtype",
            "kv_dtype",
            about="Type of cached keys and values; auto: that of the weights. fp8 is fp8_e4m3.",
        ),
        like("mem_fraction_static", "fraction", default=FRACTION),
        like("max_running_requests", "max_running", default=MAX_RUNNING),
        like(
            "chunked_prefill_size",
            "chunk",
            default=CHUNK,
            type=WholeNumber(min=1),
            about="Maximum number of prompt tokens in a step.",
        ),
        like("cuda_graph_max_bs", "graphs", default=MAX_RUNNING),
        like("context_length", "context"),
        like(
            "max_adapters", "adapters", default=0, about="Maximum number of LoRA adapters in memory at once."
        ),
        like("max_adapter_rank", "adapter_rank", default=ADAPTER_RANK),
        like("image_cache_mb"),
        like("max_state_snapshots"),
        like("state_snapshot_dtype"),
        like("replicas", about="Number of engines, each on a GPU of its own."),
        like("tp", about="Number of ranks among which the model is divided; figures are those of one."),
    ],
)
@click.argument("model", required=False)
@click.option(
    "--request-tokens",
    "lengths",
    type=WholeNumber(min=1),
    multiple=True,
    metavar="N",
    help="Say how many requests of this many tokens fit, prompt and output together; repeatable. Default: several lengths.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(
    model: str | None,
    model_option: str | None,
    device: Device,
    dtype: str,
    kv_dtype: str,
    lengths: tuple[int, ...],
    as_json: bool,
    options: dict[str, OptionValue],
    **values: Any,
) -> None:
    """Say whether MODEL fits on a GPU: its weights, its KV cache, and the memory that steps need.

    Reads config.json and the headers of weight files, if there are any. The exit code is 1 if the model does
    not fit. The memory of steps is an estimate that has not been checked on a GPU.
    """
    ctx = click.get_current_context()
    found = assess_folder(
        _folder(ctx, model_of(model, model_option)),
        *(device, dtype, kv_dtype, lengths, values, options),
        [entry.name for entry in plugins_of(ctx).registry.entries("quantized_format")],
    )
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show(found)
    ctx.exit(0 if found["fits"] else 1)


def _folder(ctx: click.Context, name: str) -> Path:
    """Return the folder of a model's config; raise ModelError if there is none."""
    path = resolve_model(name, plugins_of(ctx).registry).path
    return model_files(path)


def assess_folder(
    folder: Path,
    device: Device,
    dtype: str,
    kv_dtype: str,
    lengths: tuple[int, ...],
    values: dict[str, Any],
    options: Mapping[str, OptionValue],
    formats: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the result of `assess.describe` for the model in a folder.

    Args:
        formats: names of the quantized formats that plugins read.

    Raises:
        ModelError: the config cannot be read, or llmfw does not serve such models.
    """
    from .assess import Model, Settings, describe
    from .numbers import quantized_bytes, read_numbers, weight_bytes

    numbers = read_numbers(folder, formats)
    dtype = numbers.dtype if dtype == "auto" else dtype
    scheme = values["quantization"]
    if scheme is None:
        refuse_options(SCHEME, options, "no scheme is chosen; --quantization NAME chooses one")
    if scheme is not None:
        weights, source = quantized_bytes(numbers, scheme, options), "config.json"
    else:
        num_bytes, source = weight_bytes(numbers, dtype)
        quantized = numbers.quantized and not numbers.dequantized
        weights = {
            name: num_bytes if quantized else num_bytes * size // DTYPE_BYTES[dtype]
            for name, size in DTYPE_BYTES.items()
        }
    settings = Settings(dtype, dtype if kv_dtype == "auto" else kv_dtype, **values)
    return describe(Model(numbers, weights, source), settings, device, lengths)


def show(found: dict[str, Any]) -> None:
    """Print an assessment (see `assess.describe`) as text and tables."""
    model, device, settings = found["model"], found["device"], found["settings"]
    dtype = (
        f"{settings['dtype']}, weights in {settings['quantization']}"
        if settings["quantization"]
        else settings["dtype"]
    )
    click.echo(
        f"{model['architecture']} in {dtype} on {device['name']}, {device['bytes'] / GIB:.1f} GiB. "
        f"Weights: {model['weight_bytes'] / GIB:.2f} GiB, by {model['weights_known_from']}.\n"
        f"A token's keys and values: {model['kv_bytes_per_token']:,} bytes ({model['layers']} layers, {model['kv_heads']} "
        f"key heads for {model['heads']} heads, in {settings['kv_cache_dtype']})."
    )
    if states := model["state_bytes_per_sequence"]:
        click.echo(f"A sequence's states: {states:,} bytes.")
    if found["fits"]:
        rows = [(item["what"], f"{item['bytes'] / GIB:.2f}") for item in found["items"]]
        print_table(
            ("what", Column("GiB", right=True)), [*rows, ("free", f"{found['free_bytes'] / GIB:.2f}")]
        )
        click.echo(f"{found['tokens']:,} tokens fit.")
        if (count := settings["replicas"]) > 1:
            click.echo(
                f"{count} engines need {count} such GPUs, and have room for {count * found['tokens']:,} tokens in all. The other "
                "figures are those of one engine."
            )
        if found["requests"]:
            titles = ("tokens of a request", "at once")
            requests = [(each["tokens"], each["at_once"]) for each in found["requests"]]
            print_table([Column(title, right=True) for title in titles], requests)
    else:
        click.echo("It does not fit.")
    if "reason" in found:
        click.echo(f"{found['reason'][:1].upper()}{found['reason'][1:]}.")
        helps = found["would_help"] or ["nothing that this command knows"]
        click.echo("Would help, each alone:\n" + "\n".join(f"  {each}" for each in helps))
    for note in found["notes"]:
        click.echo(note)
