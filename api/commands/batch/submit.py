"""`llmfw batch submit`: uploads a file of requests to a running server and starts a batch with it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from llmfw.api.batches.completion_window import window_seconds
from llmfw.api.settings.click_types import WholeNumber
from llmfw.core.base.errors import RequestError

from ..remote import Remote, RemoteError, UnreachableError, server_options
from .first_line import chosen_endpoint
from .meter import ByteMeter
from .server import BatchServer, Job
from .wait import report_end, wait_for_end
from .words import errors_of, show_errors


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Callback of `--metadata`: return the "key=value" texts as a mapping."""
    pairs: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{value!r} is not key=value", ctx, param)
        if key in pairs:
            raise click.BadParameter(f"{key!r} is given twice: {pairs[key]!r} and {text!r}", ctx, param)
        pairs[key] = text
    return pairs


def _checked_window(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Callback of `--window`: return a time that a server accepts as completion window."""
    try:
        window_seconds(value)
    except RequestError:
        raise click.BadParameter(
            f"{value!r} is not a time; write a number of s, m, h or d up to 30d, as in 24h", ctx, param
        ) from None
    return value


class _SubmitCommand(click.Command):
    """A command that names `--window` in its error for an option with the name of OpenAI's field."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name != "--completion-window":
                raise
            text = "completion_window is a field of OpenAI's API; here it is --window TIME"
            raise click.UsageError(text, ctx) from error


@click.command(
    "submit", cls=_SubmitCommand, short_help="Upload a file of requests, and start a batch with it."
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--endpoint", metavar="PATH", help="Route of the requests.  [default: the url of the file's first line]"
)
@click.option(
    "--window",
    default="24h",
    show_default=True,
    callback=_checked_window,
    metavar="TIME",
    help="Give up requests that have not run after this time.",
)
@click.option(
    "--metadata",
    multiple=True,
    callback=_pairs,
    metavar="KEY=VALUE",
    help="Metadata of the batch; repeatable.",
)
@click.option(
    "--output-expires-after",
    type=WholeNumber(min=1),
    metavar="SECONDS",
    help="Delete the results on the server after this time.  [default: keep them]",
)
@click.option("--wait", is_flag=True, help="Wait until the batch ends, and show its progress.")
@server_options
def submit_command(
    file: Path, wait: bool, endpoint: str | None, url: str | None, api_key: str | None, **options: Any
) -> None:
    """Upload FILE, start a batch with it, and print the batch's id on standard output.

    Each line of FILE is a request:
    {"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}.
    With --wait the exit code is 0 if the batch completed, even if single lines failed; otherwise 1. Ctrl-C
    ends the waiting, not the batch.
    """
    server = BatchServer(Remote(url, api_key))
    body = _to_body(chosen_endpoint(file, endpoint), **options)
    job = _create(server, body, _upload(server, file))
    click.echo(job["id"])
    if wait:
        job = wait_for_end(server, job["id"])
        show_errors(errors_of(job))
        report_end(server, job)
    else:
        click.echo(f"To see it: llmfw batch status {job['id']} --watch{server.flag}", err=True)


def _to_body(
    endpoint: str, window: str, metadata: dict[str, str], output_expires_after: int | None
) -> dict[str, Any]:
    body: dict[str, Any] = {"endpoint": endpoint, "completion_window": window}
    if metadata:
        body["metadata"] = metadata
    if output_expires_after is not None:
        body["output_expires_after"] = {"anchor": "created_at", "seconds": output_expires_after}
    return body


def _upload(server: BatchServer, path: Path) -> str:
    with ByteMeter("upload", path.stat().st_size) as meter:
        file_id = server.upload(path, meter.show)
    click.echo(f"{path} is {file_id} in the server", err=True)
    return file_id


def _create(server: BatchServer, body: dict[str, Any], file_id: str) -> Job:
    try:
        return server.create({**body, "input_file_id": file_id})
    except UnreachableError as error:
        seen = f"llmfw batch list{server.flag}"
        raise RemoteError(
            f"{error}; whether there is a batch of {file_id} is not known: see {seen}"
        ) from error
    except RemoteError:
        with contextlib.suppress(RemoteError):
            server.delete_file(file_id)  # no batch will use it
        raise
