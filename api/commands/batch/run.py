"""`llmfw batch run`: runs a file of requests in this process, without a server.

`api.offline` does the work. It is imported once all options are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from llmfw.api.offline.whole_file import check_writable
from llmfw.api.settings.command import SettingsCommand
from llmfw.api.settings.component_options import OPTIONS, naming_sources
from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.api.settings.options import like, model_of, model_option, setting_options
from llmfw.core.base.adapter_name import split_adapters
from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.log import LogTarget, setup_logging
from llmfw.core.base.user_path import storage_folder
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.model_name import resolve_model

from ..serve import build_configs
from .first_line import chosen_endpoint
from .meter import LineMeter
from .wait import BatchError
from .words import counts_in_words, show_errors

if TYPE_CHECKING:
    from llmfw.core.interfaces.batch_store import BatchRecord

# Settings that only a server needs. Those that affect answers (templates, parsers, defaults) stay available.
_SERVERS_OWN = (
    "show_config",
    "host",
    "port",
    "api_key",
    "api_key_file",
    "admin_api_key",
    "admin_api_key_file",
    "adopt_unowned",
    "authenticators",
    "authentication_timeout",
    "adapter_source",
    "adapter_source_timeout",
    "middleware",
    "crash_reports",
    "crash_details",
    "storage",
    "file_store",
    "batch_store",
    "response_store",
    "response_ttl_days",
    "response_store_mb",
    "batch_share",
    "max_queued_requests",
    "max_queued_tokens",
    "max_tenant_requests",
)
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_STORES = {"file_store": "sqlite", "batch_store": "sqlite", "response_store": "memory"}


@click.command("run", cls=SettingsCommand, short_help="Run a file of requests here, without a server.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("model", required=False)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="OUT",
    help="Write the results to this file, at the end.",
)
@click.option(
    "--errors",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="ERR",
    help="Write failed lines to this file, if there are any.  [default: OUT with .errors before its suffix]",
)
@click.option(
    "--endpoint", metavar="PATH", help="Route of the requests.  [default: the url of the file's first line]"
)
def run_command(
    file: Path,
    model: str | None,
    model_option: str | None,
    output: Path,
    errors: Path | None,
    endpoint: str | None,
    storage: str | None,
    **values: Any,
) -> None:
    """Run the requests of FILE with MODEL, without a server, and write the results to OUT.

    FILE is as for `submit`, MODEL as for `serve`. After Ctrl-C, a crash or a kill, the same command resumes
    where the run stopped. The exit code is 0 if the batch completed, even if single lines failed.
    """
    name = model_of(model, model_option)
    errors = errors or output.with_name(f"{output.stem}.errors{output.suffix}")
    _check_paths(file, output, errors)
    endpoint = chosen_endpoint(file, endpoint)
    folder_path = storage_folder(storage) if storage else output.with_name(f"{output.name}.llmfw")
    plugins = plugins_of(click.get_current_context())
    resolved = resolve_model(name, plugins.registry, values["options"])
    stores = {kind: default_name(plugins.registry, kind, name) for kind, name in _STORES.items()}
    kept = {"storage": str(folder_path), **stores}
    engine, config = build_configs(resolved, {**values, **kept})

    from llmfw.api.app.event_loop import run_to_end
    from llmfw.api.offline.folder import RunFolder, Subject, digest_of, digests_of
    from llmfw.api.offline.run import FileRun
    from llmfw.api.text.model_names import check_adapter_names

    check_adapter_names(engine, config.served_model_name)

    size, sha256 = digest_of(file)
    subject = Subject(
        num_bytes=size,
        sha256=sha256,
        model=engine.model,
        served_name=config.served_model_name,
        adapters=digests_of(split_adapters(engine.adapters)),
    )
    folder = RunFolder(folder_path, subject, str(file))
    log = LogTarget(config.log_format, config.log_file)
    with LineMeter() as meter:
        setup_logging(config.log_level, log)  # inside, so that log lines are printed above the bar
        if folder.is_resumed:
            meter.note(f"going on with what is in {folder.path}")
        shown = _Progress(meter)
        work = FileRun(file, subject, endpoint, output, errors, shown.show)
        try:
            with _handlers_restored(), naming_sources(click.get_current_context().meta[OPTIONS]):
                record = run_to_end(_until_signal(work.run(engine, config, plugins)))
        except LLMFWError:
            if work.has_nothing:
                folder.end()  # otherwise it would refuse a corrected command with another subject
            raise
    if isinstance(record, signal.Signals):
        click.echo(f"stopped{shown.how_far}; the same command goes on from here", err=True)
        raise click.exceptions.Exit(128 + record)
    folder.end()
    _report(record, output, errors)


class _Progress:
    """Shows the progress of the run, and stores the latest progress for the final message."""

    def __init__(self, meter: LineMeter) -> None:
        self._meter = meter
        self._last: BatchRecord | None = None

    def show(self, state: str, record: BatchRecord | None) -> None:
        """Show the current work and, if the job exists, its progress."""
        self._last = record
        if record is None:
            self._meter.show(state, 0, 0, 0)
        else:
            done = record.num_completed + record.num_failed
            self._meter.show(state, done, record.num_failed, record.num_total)

    @property
    def how_far(self) -> str:
        """The latest progress as text to append to a message; "" if there is none."""
        if self._last is None or not self._last.num_total:
            return ""
        return f": {_counts(self._last)} are done"


@contextlib.contextmanager
def _handlers_restored() -> Iterator[None]:
    """Restore the handlers of the signals in _STOPPING at the end: a closed event loop leaves its own in place."""
    before = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _until_signal(work: Coroutine[Any, Any, BatchRecord]) -> BatchRecord | signal.Signals:
    """Run `work` until it ends or a signal arrives, which cancels it. Return its result or the signal."""
    task = asyncio.create_task(work)
    came: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not came:
            task.cancel()
        came.append(number)

    for number in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if came:
            return came[0]
        raise


def _check_paths(file: Path, output: Path, errors: Path) -> None:
    """Reject paths that could not be written after the work, or that are the same file."""
    names = {"FILE": file.resolve(), "OUT": output.resolve(), "ERR": errors.resolve()}
    for one, other in (("FILE", "OUT"), ("FILE", "ERR"), ("OUT", "ERR")):
        if names[one] == names[other]:
            raise click.UsageError(f"{one} and {other} are the same file, {str(names[one])!r}; give two")
    check_writable(output)
    check_writable(errors)


def _report(record: BatchRecord, output: Path, errors: Path) -> None:
    """Print the outcome of the run.

    Raises:
        BatchError: the final status is not "completed".
    """
    show_errors([msgspec.structs.asdict(error) for error in record.errors])
    if record.status == "failed" and not record.output_file_id:
        raise BatchError("the file cannot be run, for the reasons above")
    text = f"{record.status}: {_counts(record)}; {output} has the results"
    if record.num_failed:
        text += f", {errors} the failed lines"
    if record.status != "completed":
        raise BatchError(text)
    click.echo(text, err=True)


def _counts(record: BatchRecord) -> str:
    return counts_in_words(record.num_completed + record.num_failed, record.num_failed, record.num_total)


_STORAGE = like(
    "storage", about="Folder that keeps the progress of this run until its end.", unset="OUT.llmfw"
)
run_command.params.extend([_STORAGE, model_option(), *setting_options(without=_SERVERS_OWN)])
for _option in run_command.params:
    if _option.name == "log_level":
        _option.default = "warning"  # the progress bar replaces the log's information
