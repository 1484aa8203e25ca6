"""Describes a server's batch objects as text. Does not depend on HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from llmfw.core.terminal.tables import plain

NUM_ERRORS = 10
"""Maximum number of errors of a batch to show."""

CUT_SHORT = ("cancelled", "expired")
"""States of batches whose number of failed lines includes those that did not run."""


def counts_of(job: dict[str, Any]) -> tuple[int, int, int]:
    """Return the numbers of lines that are done, of failed lines, and of all lines.

    If the batch was cancelled or has expired, only completed lines are done, and the number of failed lines is 0,
    because lines that did not run count as failed.
    """
    counts = job.get("request_counts") or {}
    completed, failed, total = (int(counts.get(key) or 0) for key in ("completed", "failed", "total"))
    if job.get("status") in CUT_SHORT:
        return completed, 0, total
    return completed + failed, failed, total


def count_in_words(job: dict[str, Any]) -> str:
    """Return a batch's counts as text, as in "3 of 5 lines, 1 of them failed".

    If the batch was cancelled or has expired, the text gives the number of completed lines first, because
    lines that did not run count as failed.
    """
    done, failed, total = counts_of(job)
    if job.get("status") in CUT_SHORT:
        return f"{done} of {total} lines have a result, {total - done} failed or did not run"
    return counts_in_words(done, failed, total)


def counts_in_words(done: int, failed: int, total: int) -> str:
    """Return counts as text, as in "3 of 5 lines, 1 of them failed"."""
    text = f"{done} of {total} lines"
    return f"{text}, {failed} of them failed" if failed else text


def errors_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a batch's errors: the reasons why it cannot run."""
    return (job.get("errors") or {}).get("data") or []


def error_lines(errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the first errors as text, each with its line number in the file, then how many more there are."""
    for error in errors[:NUM_ERRORS]:
        where = f"line {error['line']}: " if error.get("line") is not None else ""
        code = f" ({plain(error['code'])})" if error.get("code") else ""
        yield f"{where}{plain(error.get('message'))}{code}"
    if len(errors) > NUM_ERRORS:
        yield f"and {len(errors) - NUM_ERRORS} more"


def show_errors(errors: Sequence[Mapping[str, Any]]) -> None:
    """Print errors on standard error."""
    for line in error_lines(errors):
        click.echo(line, err=True)


def describe(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the properties of a batch as pairs of name and text."""
    yield "endpoint", plain(job.get("endpoint"))
    if job.get("model"):
        yield "model", plain(job["model"])
    yield "lines", count_in_words(job)
    for name in ("created", "expires", "completed", "failed", "expired", "cancelled"):
        if at := job.get(f"{name}_at"):
            yield name, time_in_words(at)
    for name in ("input", "output", "error"):
        if file_id := job.get(f"{name}_file_id"):
            yield f"{name} file", plain(file_id)
    if usage := job.get("usage"):
        yield "tokens", f"{usage.get('input_tokens', 0)} in, {usage.get('output_tokens', 0)} out"
    for key, value in (job.get("metadata") or {}).items():
        yield "metadata", f"{plain(key)}={plain(value)}"
    for line in error_lines(errors_of(job)):
        yield "error", line


def time_in_words(seconds: float) -> str:
    """Return a time (seconds since the epoch) as text, in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
