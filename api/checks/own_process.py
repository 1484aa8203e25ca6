"""Runs a check in a process of its own, so that a component that ends the process cannot end the check in silence."""

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
    """Run a check in a forked process, and wait for it. If a process cannot be forked, runs the function in this one.

    Ends this process with the other one's exit code if the check has come to its end, by returning or raising.

    Args:
        check: what to run; calls the function that it is given with what it begins to do.

    Returns:
        A sentence that says how the process has ended, if the check has not come to its end; else None.
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
    """Return whether the output goes to files, which a forked process shares; tests replace them by objects."""
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
    """Return the process's output, and its exit code, or the negative number of the signal that ended it.

    Ctrl-C reaches both processes; the other one answers it.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(pipe, "rb") as told:
            text = told.read().decode()
        _, status = os.waitpid(child, 0)
    finally:
        signal.signal(signal.SIGINT, before)
    return text, os.waitstatus_to_exitcode(status)
