"""Child process of the supervisor: compiles grammars one after another, each within limits.

The process is replaced after a slow or large grammar, because it cannot restore its priority or release all
its memory.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from time import clock_gettime

import msgspec

from llmfw.core.base.described import described
from llmfw.core.base.errors import RequestError
from llmfw.core.base.memory import resident_bytes
from llmfw.core.base.request import GrammarSpec
from llmfw.core.ipc.child import end_with
from llmfw.core.ipc.resource_limits import limited
from llmfw.core.ipc.wire import Frames, framed

from .messages import TOO_COMPLEX, Job, Limits, Verdict, decode_request, encode
from .trial import FailedCallError

STACK_BYTES = 4 * 2**20
"""Stack size of the thread that compiles. The engine's compiling threads have a larger stack
(`engine.grammars`), so a grammar that compiles here also compiles there."""

MAX_GROWTH = 16 * 2**20
"""Growth of a child's memory, in bytes, beyond which the child is replaced."""

SLOW_NICENESS = 5

WARM_UP = GrammarSpec("json_schema", '{"type": "object", "properties": {"a": {"type": "string"}}}')

Prove = Callable[[GrammarSpec], GrammarSpec]


class Child:
    """A forked process that runs one job at a time, as seen by its parent. `Pool` starts and ends it.

    Args:
        prove: function that tries out a grammar, and returns the spec for the engine to compile
            (`trial.prove`); called in the child process.
        limits: limits of each job.
        close: function that closes the parent's sockets and files in the child process.

    Attributes:
        pid: process id.
        sock: socket connected to the process.
        job: current job; None if the process is idle.
        begun: start time of the job.
        is_slow: whether the process runs at low priority; it then ends after its job.
    """

    def __init__(self, prove: Prove, limits: Limits, close: Callable[[], None]) -> None:
        self.sock, theirs = socket.socketpair()
        self.job: Job | None = None
        self.begun = self._cpu_before = 0.0
        self.is_slow = False
        self._frames = Frames()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                end_with(parent)
                self.sock.close()
                close()
                _be_child(theirs, prove, limits)
            finally:
                os._exit(1)
        theirs.close()

    def start(self, job: Job, now: float, *, is_slow: bool) -> None:
        """Send a job to the process.

        Args:
            job: job to run.
            now: current time.
            is_slow: whether to lower the priority of the process first.
        """
        self.job, self.begun, self._cpu_before = job, now, self._cpu_now()
        if is_slow:
            self.slow_down()
        with contextlib.suppress(OSError):  # if the process has died, `read` reports it
            self.sock.sendall(framed(encode(job)))

    def slow_down(self) -> None:
        """Lower the priority of the process until its end."""
        self.is_slow = True
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, SLOW_NICENESS)

    def cpu_s(self, now: float) -> float:
        """Return the job's CPU time in seconds; if the system does not report it, the job's wall time."""
        return self._cpu_now() - self._cpu_before if sys.platform == "linux" else now - self.begun

    def _cpu_now(self) -> float:
        try:
            return clock_gettime((~self.pid << 3) | 2)  # the clock id that clock_getcpuclockid(3) returns
        except OSError:
            return 0.0

    def read(self) -> bytes | None:
        """Read the available data.

        Returns:
            The answer if it is complete; b"" if the process ended without an answer; else None.
        """
        try:
            data = self.sock.recv(2**20)
        except OSError:
            data = b""
        if not data:
            return b""
        payloads = self._frames.feed(data)
        return payloads[0] if payloads else None

    def end(self) -> int:
        """Kill the process and wait for it; return its exit code, negative if a signal ended it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.sock.close()
        return os.waitstatus_to_exitcode(status)


def _be_child(sock: socket.socket, prove: Prove, limits: Limits) -> None:
    """Run jobs in the child process until the parent closes the socket."""
    with open(os.devnull, "r+b") as silent:  # the output of a native crash may contain clients' text
        for descriptor in (0, 1, 2):
            os.dup2(silent.fileno(), descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=_work, args=(sock, prove, limits))
    thread.start()
    thread.join()
    os._exit(0)


def _work(sock: socket.socket, prove: Prove, limits: Limits) -> None:
    _verdict(prove, WARM_UP)  # copies the memory pages that every job writes to, before memory is measured
    before, frames = resident_bytes(), Frames()
    while data := sock.recv(2**20):
        for payload in frames.feed(data):
            job = decode_request(payload)
            assert isinstance(job, Job)
            with limited(limits.deadline_s, limits.memory_mb):
                verdict = _verdict(prove, job.spec)
            is_last = resident_bytes() - before > MAX_GROWTH
            sock.sendall(framed(encode(msgspec.structs.replace(verdict, is_last=is_last))))


def _verdict(prove: Prove, spec: GrammarSpec) -> Verdict:
    try:
        return Verdict(outcome="proved", spec=prove(spec))
    except RequestError as error:
        return Verdict(outcome="refused", message=str(error), code=error.code or "")
    except MemoryError:
        return Verdict(outcome="refused", message=_out_of_memory(), code=TOO_COMPLEX)
    except RecursionError:
        return Verdict(outcome="refused", message="it is nested too deeply", code=TOO_COMPLEX)
    except FailedCallError as error:
        detail = "".join(traceback.format_exception(error))[-8000:]
        return Verdict(outcome="failed", message=str(error), detail=detail, where=error.where)
    except BaseException as error:  # noqa: BLE001 - a plugin's error; the API process logs it
        detail = "".join(traceback.format_exception(error))
        return Verdict(outcome="failed", message=described(error), detail=detail[-8000:])


def _out_of_memory() -> str:
    return "compiling it takes too much memory; make it smaller"
