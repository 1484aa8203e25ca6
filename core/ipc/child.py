"""What a process that llmfw starts does about signals and about its parent's end, and what its parent does for it.

Knows nothing of what the process is for.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

PARENT = "LLMFW_PARENT_PID"
"""Environment variable: the process with which a child ends."""

LEFT_TO_PARENT = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGALRM)
"""Signals that a child ignores. A terminal sends the first three to all processes of a server."""

_HELD = (*LEFT_TO_PARENT, signal.SIGUSR1, signal.SIGPIPE)  # Python ignores the last one
_PR_SET_PDEATHSIG = 1


def start_child(
    command: Sequence[str], environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one once it has called `settle`. Any thread may call this.

    Linux takes the end of the thread that started a process for the end of its parent. So a thread of its own starts it,
    and waits until it has ended. A process that is stopped before `settle` outlives its parent, if that ends then: nothing
    but a function that runs between fork and exec could prevent that, and with several threads that may hang.

    Args:
        environment: the process gets it, and the id of this process.
        options: further ones of Popen.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def attend() -> None:
        try:
            with _signals_blocked():
                process = subprocess.Popen(command, env={**environment, PARENT: str(os.getpid())}, **options)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            started.set_exception(error)
            return
        started.set_result(process)
        with contextlib.suppress(ChildProcessError):  # another thread has waited for it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=attend, name="llmfw-child-parent", daemon=True).start()
    return started.result()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
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
