"""`llmfw batch status`, `list` and `cancel`: show, list and cancel a server's batches."""

from __future__ import annotations

import json

import click

from llmfw.api.settings.click_types import WholeNumber
from llmfw.core.interfaces.batch_store import ENDED
from llmfw.core.terminal.tables import Cell, Column, plain, print_table

from ..remote import Remote, server_options
from .server import BatchServer, Job
from .wait import BatchError, report_end, summary_of, wait_for_end
from .words import CUT_SHORT, count_in_words, counts_of, describe, time_in_words

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the server's reply as JSON.")


@click.command("status")
@click.argument("batch_id")
@click.option("--watch", is_flag=True, help="Wait until the batch ends, and show its progress.")
@_AS_JSON
@server_options
def status_command(batch_id: str, watch: bool, as_json: bool, url: str | None, api_key: str | None) -> None:
    """Show a batch.

    With --watch the exit code is 0 if the batch completed, otherwise 1. Ctrl-C ends the watching, not the
    batch.
    """
    server = BatchServer(Remote(url, api_key))
    job = wait_for_end(server, batch_id) if watch else server.get(batch_id)
    if as_json:
        click.echo(json.dumps(job, indent=2))
    else:
        _print(job)
    if watch:
        report_end(server, job)


@click.command("list")
@click.option(
    "--limit",
    type=WholeNumber(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of batches.",
)
@_AS_JSON
@server_options
def list_command(limit: int, as_json: bool, url: str | None, api_key: str | None) -> None:
    """List the batches of a server, newest first; with --json as one array."""
    jobs = BatchServer(Remote(url, api_key)).list(limit)
    if as_json:
        click.echo(json.dumps(jobs, indent=2))
    else:
        _print_table(jobs)


@click.command("cancel")
@click.argument("batch_id")
@click.option("--wait", is_flag=True, help="Wait until the batch ends.")
@server_options
def cancel_command(batch_id: str, wait: bool, url: str | None, api_key: str | None) -> None:
    """Cancel a batch. Results of finished lines are kept.

    With --wait the exit code is 1 if the batch ended before it was cancelled.
    """
    server = BatchServer(Remote(url, api_key))
    job = server.cancel(batch_id)
    if wait and job["status"] not in ENDED:
        job = wait_for_end(server, batch_id)
    if job["status"] == "cancelled":
        click.echo(summary_of(server, job), err=True)
        return
    how = f"{batch_id} is {plain(job['status'])}: {count_in_words(job)}"
    if job["status"] in ENDED:
        raise BatchError(f"{how}; it had ended before it could be cancelled")
    click.echo(f"{how}. To see its end: llmfw batch status {batch_id} --watch{server.flag}", err=True)


def _print(job: Job) -> None:
    click.echo(f"{plain(job['id'])}: {plain(job['status'])}")
    for name, value in describe(job):
        click.echo(f"  {name:12} {value}")


def _print_table(jobs: list[Job]) -> None:
    columns = (
        Column("id"),
        Column("status"),
        Column("lines", right=True),
        Column("failed", right=True),
        Column("created", drop=1),
        Column("endpoint", drop=2),
    )
    print_table(columns, map(_row, jobs))


def _row(job: Job) -> tuple[Cell, ...]:
    done, failed, total = counts_of(job)
    created = time_in_words(job["created_at"]) if job.get("created_at") else None
    shown = None if job["status"] in CUT_SHORT else failed  # lines that did not run count as failed
    return job["id"], job["status"], f"{done}/{total}", shown, created, job.get("endpoint")
