"""Shows the server's frames in the terminal, until the server ends or the user stops the command."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Generator, Iterator

import click

from ..feed import Frame
from .picture import picture
from .rates import RateMeter, Rates
from .stream import frames


def watch(url: str, api_key: str | None, interval: float, once: bool) -> None:
    """Show a server's frames.

    Raises:
        TopError: the server cannot be reached, refuses the stream, or closes it early.
    """
    meter = RateMeter()
    moments = at_intervals(frames(url, api_key), interval)
    if once or not sys.stdout.isatty():
        first = next(moments)
        if first.stats is not None:
            meter.next(first.at, first.stats)
        click.echo("\n".join(_picture(next(moments), meter, 10_000)))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with (
        contextlib.suppress(KeyboardInterrupt),
        contextlib.closing(moments),
        Live(console=Console(), screen=True, auto_refresh=False) as live,
    ):
        for frame in moments:
            height = shutil.get_terminal_size().lines
            live.update(Text("\n".join(_picture(frame, meter, height))), refresh=True)


def at_intervals(stream: Iterator[Frame], seconds: float) -> Generator[Frame]:
    """Yield the first frame, and then one frame per interval, by the times in the frames."""
    due = float("-inf")
    for frame in stream:
        if frame.at >= due:
            due = frame.at + seconds
            yield frame


def _picture(frame: Frame, meter: RateMeter, height: int) -> list[str]:
    rates: Rates | None = None if frame.stats is None else meter.next(frame.at, frame.stats)
    return picture(frame, rates, meter.outputs, shutil.get_terminal_size().columns, height)
