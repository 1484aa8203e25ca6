"""`llmfw batch results`: downloads the files of a batch that has ended."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click

from llmfw.api.offline.whole_file import whole_file
from llmfw.core.interfaces.batch_store import ENDED
from llmfw.core.terminal.tables import plain

from ..remote import Remote, server_options
from .meter import ByteMeter
from .server import BatchServer, Job
from .wait import BatchError
from .words import count_in_words, errors_of, show_errors

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("results")
@click.argument("batch_id")
@click.option(
    "--output", type=_FILE, metavar="FILE", help="Write the results to this file.  [default: standard output]"
)
@click.option(
    "--errors",
    type=_FILE,
    metavar="FILE",
    help="Write failed lines to this file.  [default: they stay on the server]",
)
@server_options
def results_command(
    batch_id: str, output: Path | None, errors: Path | None, url: str | None, api_key: str | None
) -> None:
    """Download the results of a batch, one line for each request, by its custom_id.

    Files are written whole or not at all. The exit code is 1 if the batch has not ended or has no output.
    """
    server = BatchServer(Remote(url, api_key))
    job = server.get(batch_id)
    _check_has_ended(server, job)
    _get_errors(server, job, errors)
    _get_output(server, job, output)


def _check_has_ended(server: BatchServer, job: Job) -> None:
    if job["status"] in ENDED:
        return
    raise BatchError(
        f"{job['id']} is {plain(job['status'])}, {count_in_words(job)}; there are results when it has ended: "
        f"llmfw batch status {job['id']} --watch{server.flag}"
    )


def _get_errors(server: BatchServer, job: Job, path: Path | None) -> None:
    file_id = job.get("error_file_id")
    if path is not None:
        if file_id:
            _save(server, file_id, path)
        else:
            click.echo(f"no line failed: {str(path)!r} is not written", err=True)
    elif file_id:
        click.echo(f"{count_in_words(job)}; --errors FILE saves the errors of these", err=True)


def _get_output(server: BatchServer, job: Job, path: Path | None) -> None:
    file_id = job.get("output_file_id")
    if not file_id:
        show_errors(errors_of(job))
        raise BatchError(f"{job['id']} has no output: it is {plain(job['status'])}, {count_in_words(job)}")
    if path is None:
        _copy(server.content(file_id), sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        _save(server, file_id, path)


def _save(server: BatchServer, file_id: str, path: Path) -> None:
    with whole_file(path) as file, ByteMeter(path.name, None) as meter:
        _copy(server.content(file_id), file, meter)


def _copy(pieces: Iterable[bytes], file: BinaryIO, meter: ByteMeter | None = None) -> None:
    num_bytes = 0
    for piece in pieces:
        file.write(piece)
        num_bytes += len(piece)
        if meter:
            meter.show(num_bytes)
