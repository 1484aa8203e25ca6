"""Tells who waits for a slow import what they wait for: an import cannot be stopped, but it can be named."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

STILL_S = 5.0  # so long an import may take before it is told that it still runs


def _print(line: str) -> None:
    print(f"llmfw: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def telling_of(
    what: Callable[[], str], tell: Callable[[str], None] = _print, after_s: float = STILL_S
) -> Iterator[None]:
    """Have it told what is imported, if the block still runs after so many seconds.

    Args:
        what: is asked then, in another thread.
        tell: is given the line.
    """
    import threading  # the command line starts without it

    timer = threading.Timer(after_s, lambda: tell(f"still importing {what()} after {after_s:.0f} s …"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
