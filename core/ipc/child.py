"""Starts child processes, makes them end with their parent, and sets up their signal handling.

Used for the engine process and the processes that compile grammars. Does not depend on their tasks.
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
"""Environment variable with the process id of the parent, for `settle`."""

LEFT_TO_PARENT = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGALRM)
"""Signals that a child ignores. A terminal sends the first three to all processes of a server."""

_HELD = (*LEFT_TO_PARENT, signal.SIGUSR1, signal.SIGPIPE)  # Python ignores the last one
_PR_SET_PDEATHSIG = 1


def start_child(
    command: Sequence[str], environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a child process. Once the child has called `settle`, it ends with this process.

    Any thread may call this. Linux treats the end of the thread that started a process as the end of the
    parent. So a dedicated thread starts the child, and waits until the child has ended. A child that is
    stopped (SIGSTOP) before it calls `settle` may outlive this process. Only code between fork and exec could
    prevent that, and such code may hang in a process with several threads.

    Args:
        command: program and arguments.
        environment: environment of the child. The id of this process is added to it.
        options: further arguments of `subprocess.Popen`.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def attend() -> None:
        try:
            with _signals_blocked():
                process = subprocess.Popen(command, env={**environment, PARENT: str(os.getpid())}, **options)
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            started.set_exception(error)
            return
        started.set_result(process)
        with contextlib.suppress(ChildProcessError):  # another thread has waited for it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=attend, name="llmfw-child-parent", daemon=True).start()
    return started.result()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block the signals that `settle` sets up, in this thread and in the processes that it starts meanwhile.

    So none of these signals ends a new process before the process has called `settle`.
    """
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def settle() -> None:
    """Set up this child process: handle signals, and end when the parent ends.

    The main thread of a child calls this before anything else. From then on, SIGUSR1 and crashes such as
    SIGSEGV write the stacks of all threads to stderr, even while native code holds the interpreter lock.
    """
    if parent := os.environ.pop(PARENT, None):
        end_with(int(parent))
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def end_with(parent: int) -> None:
    """Have Linux kill this process when its parent ends, even if this process is stopped (SIGSTOP).

    Does nothing on other systems.

    Args:
        parent: process id of the parent. If the parent has already ended, this process exits at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
