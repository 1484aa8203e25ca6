"""What a process that llmfw starts does about signals and about its parent's end, and what its parent does for it.

Knows nothing of what the process is for.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping

PARENT = "LLMFW_PARENT_PID"
"""Environment variable: the process with which a child ends."""

LEFT_TO_PARENT = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGALRM)
"""Signals that a child ignores. A terminal sends the first three to all processes of a server."""

_HELD = (*LEFT_TO_PARENT, signal.SIGUSR1, signal.SIGPIPE)  # Python ignores the last one
_PR_SET_PDEATHSIG = 1


def parent_environment() -> Mapping[str, str]:
    """Return the environment variable by which a child learns who its parent is.

    Linux takes the end of the thread that started a process for the end of its parent. So only the main thread names one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return {PARENT: str(os.getpid())} if is_main else {}


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block, in processes that this thread starts meanwhile, the signals that `settle` handles: none ends them before it."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def settle() -> None:
    """Handle signals as a child of a server does, and end with the parent. Called first, by the main thread.

    SIGUSR1, and a crash by a signal, write the stacks of all threads to stderr. That needs no interpreter lock: it works
    while native code holds it.
    """
    if parent := os.environ.pop(PARENT, None):
        end_with(int(parent))
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def end_with(parent: int) -> None:
    """Have Linux kill this process once its parent has ended, even if it is stopped by SIGSTOP. Elsewhere does nothing.

    Args:
        parent: process id. If it has ended already, this process ends here.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
