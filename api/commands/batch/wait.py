"""Waits until a server's batch ends, and reports how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from llmfw.core.base.errors import LLMFWError
from llmfw.core.interfaces.batch_store import ENDED

from ..remote import RemoteError
from .meter import LineMeter
from .server import BatchServer, Job, may_pass
from .words import count_in_words, counts_of

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0
GIVE_UP_AFTER_S = 180.0  # without an answer: a restarted server loads its model first
INTERRUPTED = 130


class BatchError(LLMFWError):
    """A batch did not complete, or has no results."""


def wait_for_end(server: BatchServer, batch_id: str) -> Job:
    """Show the progress of a batch until it has ended; return the batch.

    Ctrl-C ends the command with exit code 130, and prints that the batch continues.

    Raises:
        RemoteError: the server has no such batch, or has not answered for GIVE_UP_AFTER_S.
    """
    try:
        with LineMeter() as meter:
            return _wait(server, batch_id, meter)
    except KeyboardInterrupt:
        click.echo(
            f"{batch_id} goes on in the server. To see it: llmfw batch status {batch_id} --watch{server.flag}; "
            f"to end it: llmfw batch cancel {batch_id}{server.flag}",
            err=True,
        )
        raise click.exceptions.Exit(INTERRUPTED) from None


def report_end(server: BatchServer, job: Job) -> None:
    """Print how a batch ended, and how to get its results.

    Raises:
        BatchError: the batch did not complete; the message says how the batch ended.
    """
    if job["status"] == "failed":
        raise BatchError(f"{job['id']} has failed: its file cannot be run, for the reasons above")
    summary = summary_of(server, job)
    if job["status"] != "completed":
        raise BatchError(summary)
    click.echo(summary, err=True)


def summary_of(server: BatchServer, job: Job) -> str:
    """Return how a batch ended, with its counts, and how to get its results."""
    how = f"{job['id']} {_ENDS.get(job['status'], job['status'])}: {count_in_words(job)}"
    return f"{how}.{_how_to_get_results(server, job)}"


_ENDS = {"completed": "has completed", "cancelled": "was cancelled", "expired": "has expired"}


def _how_to_get_results(server: BatchServer, job: Job) -> str:
    output = " --output FILE" if job.get("output_file_id") else ""
    errors = " --errors FILE" if job.get("error_file_id") else ""
    if not (output or errors):
        return ""
    return f" Results: llmfw batch results {job['id']}{output}{errors}{server.flag}"


def _wait(server: BatchServer, batch_id: str, meter: LineMeter) -> Job:
    wait_s = FIRST_WAIT_S
    while True:
        job = _patiently(lambda: server.get(batch_id), meter)
        meter.show(job["status"], *counts_of(job))
        if job["status"] in ENDED:
            return job
        time.sleep(wait_s)
        wait_s = min(LONGEST_WAIT_S, wait_s * 1.3)


def _patiently(ask: Callable[[], Job], meter: LineMeter) -> Job:
    """Return the result of `ask`. Retries errors that may be temporary, for up to GIVE_UP_AFTER_S."""
    given_up_at = None
    while True:
        try:
            return ask()
        except RemoteError as error:
            if not may_pass(error):
                raise
            now = time.monotonic()
            if given_up_at is None:
                given_up_at = now + GIVE_UP_AFTER_S
                meter.note(f"{error}; trying again for {GIVE_UP_AFTER_S:.0f} s")
            if now >= given_up_at:
                raise RemoteError(
                    f"{error}; tried for {GIVE_UP_AFTER_S:.0f} s. The batch goes on when the server does, if it has "
                    "a folder for it (--storage)"
                ) from error
            time.sleep(LONGEST_WAIT_S)
