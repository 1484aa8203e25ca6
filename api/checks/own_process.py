"""Runs a check in a separate process, so that a component cannot silently end the check."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

Tell = Callable[[str], None]
"""Tells the watching process what runs now, such as the name of a test."""

DONE = "\n"
"""What the checking process writes last."""


def watched(check: Callable[[Tell], None]) -> str | None:
    """Run a check in a forked process, and wait for it. Without fork, run the check in this process.

    If the check returns or raises, this process ends with the exit code of the forked process.

    Args:
        check: the check. Before each test, it calls its argument with a description of the test.

    Returns:
        A sentence about how the forked process ended, if the check neither returned nor raised; else None.
    """
    if not _can_fork():
        check(lambda what: None)
        return None
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run(check, write)
        return None
    os.close(write)
    told, code = _wait(child, read)
    if told.endswith(DONE):
        raise SystemExit(code if code >= 0 else 128 - code)
    last = told.rpartition("\t")[2]
    how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"
    return f"the component ended the process {how}" + (f" while this was tested: {last}" if last else "")


def _can_fork() -> bool:
    """Return whether output goes to file descriptors, which a forked process shares (not so in tests)."""
    try:
        return hasattr(os, "fork") and sys.stdout.fileno() >= 0 and sys.stderr.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


def _run(check: Callable[[Tell], None], pipe: int) -> None:
    def tell(what: str) -> None:
        os.write(pipe, f"\t{what}".encode())

    try:
        check(tell)
    finally:
        os.write(pipe, DONE.encode())
        os.close(pipe)


def _wait(child: int, pipe: int) -> tuple[str, int]:
    """Return the text from the pipe, and the process's exit code or the negated number of its signal.

    Ctrl-C reaches both processes; the forked process handles it.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(pipe, "rb") as told:
            text = told.read().decode()
        _, status = os.waitpid(child, 0)
    finally:
        signal.signal(signal.SIGINT, before)
    return text, os.waitstatus_to_exitcode(status)
