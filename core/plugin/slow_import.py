"""Reports slow imports while they run.

An import cannot be stopped, but the report shows the user which import is slow.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

STILL_S = 5.0  # default for `after_s`; importing torch alone takes a while


def _print(line: str) -> None:
    print(f"llmfw: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Redirect the block's output to stderr, because a program may read stdout. Restores both streams."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(sys.stderr):
        yield


@contextlib.contextmanager
def warn_if_slow(
    what: Callable[[], str],
    tell: Callable[[str], None] | None = None,
    after_s: float = STILL_S,
    begun: Callable[[], float] | None = None,
) -> Iterator[None]:
    """Report each import that still runs after `after_s` seconds.

    Args:
        what: function that returns the name of the current import; called in another thread.
        tell: function that receives the report, once per import; None: reports are printed to stderr.
        after_s: seconds that an import may take without a report.
        begun: function that returns the start of the current import, by `time.monotonic`; None: the block's
            start.
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
