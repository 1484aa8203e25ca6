"""Shows progress on standard error: a bar on a terminal, else a line from time to time.

Imports rich only when a bar is shown.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from .words import CUT_SHORT

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_EVERY_S = 10.0
RATE_OVER_S = 20.0


class Rate:
    """Growth rate of a count over the last RATE_OVER_S seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, count: int, now: float) -> float:
        """Add the count at `now` (seconds on a monotonic clock); return the growth per second."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] > RATE_OVER_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (count - before) / (now - since) if now > since else 0.0


class LineMeter:
    """Shows how many lines of a batch are done. Use it in a with statement."""

    def __init__(self) -> None:
        self._bar = _LineBar() if sys.stderr.isatty() else None
        self._rate = Rate()
        self._said = ("", "")
        self._said_at = 0.0

    def show(self, status: str, done: int, failed: int, total: int) -> None:
        """Show the progress.

        Args:
            status: status of the batch.
            done: number of lines with a result, failed lines included.
            failed: number of failed lines.
            total: number of all lines; 0 while it is not known.
        """
        now = time.monotonic()
        rate = 0.0 if status in CUT_SHORT else self._rate.see(done, now)
        if self._bar:
            self._bar.show(status, done, failed, total, rate)
        else:
            self._say(status, _in_words(status, done, failed, total), rate, now)

    def note(self, text: str) -> None:
        """Print a line of text without disturbing the bar."""
        if self._bar:
            self._bar.note(text)
        else:
            click.echo(text, err=True)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def _say(self, status: str, text: str, rate: float, now: float) -> None:
        """Print a line if the status has changed, or if LINE_EVERY_S have passed and the text has changed."""
        is_due = now - self._said_at >= LINE_EVERY_S
        if status != self._said[0] or (is_due and text != self._said[1]):
            self._said, self._said_at = (status, text), now
            click.echo(f"{text}, {rate:.1f} lines/s" if rate else text, err=True)


class ByteMeter:
    """Shows a bar for a file transfer on a terminal, else nothing. Use it in a with statement."""

    def __init__(self, what: str, total: int | None) -> None:
        self._progress = _progress_of_bytes() if sys.stderr.isatty() else None
        self._what = what
        self._total = total

    def show(self, done: int) -> None:
        """Show how many bytes have been transferred."""
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=done)

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.add_task(self._what, total=self._total)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()


class _LineBar:
    """The progress bar that a `LineMeter` shows on a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

        self._progress = _progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            TimeElapsedColumn(),
        )
        self._task: TaskID = self._progress.add_task("", total=None, counts="")

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def show(self, status: str, done: int, failed: int, total: int, rate: float) -> None:
        counts = f"{done}/{total} lines" if total else ""
        counts += f", {failed} failed" if failed else ""
        counts += f", {rate:.1f}/s" if rate else ""
        self._progress.update(
            self._task, description=status, completed=done, total=total or None, counts=counts
        )


def _in_words(status: str, done: int, failed: int, total: int) -> str:
    text = f"{status}: {done} of {total} lines done" if total else status
    return f"{text}, {failed} of them failed" if failed else text


def _progress(*columns: Any) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)


def _progress_of_bytes() -> Progress:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    description = TextColumn("{task.description}", markup=False)
    return _progress(description, BarColumn(), DownloadColumn(), TransferSpeedColumn())
