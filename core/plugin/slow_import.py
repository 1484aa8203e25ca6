"""Tells who waits for a slow import what they wait for: an import cannot be stopped, but it can be named."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

STILL_S = 5.0  # so long a part's import may take before it is told that it still runs: torch takes a while


def _print(line: str) -> None:
    print(f"llmfw: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def telling_of(
    what: Callable[[], str],
    tell: Callable[[str], None] | None = None,
    after_s: float = STILL_S,
    begun: Callable[[], float] | None = None,
) -> Iterator[None]:
    """Have it told what is imported, if that still runs after so many seconds.

    Args:
        what: is asked then, in another thread.
        tell: is given the line, once for each thing; None: it is printed to stderr.
        begun: returns when the import began that runs now, by `time.monotonic`; None: as the block did.
    """
    import threading  # the command line starts without it

    start, ended = time.monotonic(), threading.Event()

    def watch() -> None:
        told = None
        while True:
            since = start if begun is None else begun()
            rest = after_s if since == told else since + after_s - time.monotonic()
            if rest <= 0:
                (tell or _print)(f"still importing {what()} after {after_s:.0f} s …")
                told, rest = since, after_s
            if ended.wait(rest):
                return

    threading.Thread(target=watch, name="llmfw-slow-import", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
