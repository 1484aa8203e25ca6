"""Runs jobs of a parent process, each in a forked child that may crash, hang or be killed.

The process that forks loads everything that jobs need, such as libraries and a model's files. It never reads
a job's data. It ends when its socket to the parent closes. `ForkClient` is the parent's side.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
from time import monotonic
from typing import Protocol

from .child import end_with, settle
from .resource_limits import set_soft
from .wire import Frames, framed

MAX_ANSWER = 4096  # bytes of a child's answer
READY = b""
"""First message to the parent. Any other first message is the reason why no job can be run."""


class ForkedWork(Protocol):
    """The work that children do. Jobs and answers are messages; larger data is in the memory file."""

    def longest_s(self, job: bytes) -> float:
        """Return the seconds after which a child is killed."""

    def run(self, job: bytes, memory: int) -> bytes:
        """Do a job, and return the answer. Runs in a child, which then ends.

        Args:
            memory: descriptor of the memory file, with the data from the parent.
        """

    def too_slow(self, job: bytes) -> bytes:
        """Return the answer for a job whose child was killed after `longest_s`."""

    def after_death(self, job: bytes, exit_code: int) -> bytes:
        """Return the answer for a job whose child died; the exit code is negative if a signal ended it."""


class ForkServer:
    """Event loop of the process that forks.

    Args:
        sock: socket connected to the parent.
        memory: descriptor of the memory file.
    """

    def __init__(self, sock: socket.socket, memory: int) -> None:
        self._sock = sock
        self._memory = memory

    def refuse(self, reason: str) -> None:
        """Tell the parent why no job can be run."""
        self._send(reason.encode())

    def serve(self, work: ForkedWork) -> None:
        """Run jobs until the parent closes the socket."""
        gc.collect()
        gc.freeze()  # otherwise garbage collection in a child would write to shared pages and copy them
        self._send(READY)
        frames = Frames()
        while data := self._sock.recv(2**16):
            for job in frames.feed(data):
                self._send(self._answer(work, job))

    def _answer(self, work: ForkedWork, job: bytes) -> bytes:
        """Do a job in a child process."""
        reading, writing = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                end_with(parent)
                os.close(reading)
                self._sock.close()
                _be_child()
                os.write(writing, work.run(job, self._memory))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        try:
            said, in_time = _read_until(reading, monotonic() + work.longest_s(job))
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if not in_time:
            return work.too_slow(job)
        return said or work.after_death(job, os.waitstatus_to_exitcode(status))

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # if the parent is gone, reading reports it
            self._sock.sendall(framed(message))


def connected() -> ForkServer:
    """Return this process's server. Standard input is its socket, and the last argument its memory file."""
    settle()
    descriptor = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(True)
    return ForkServer(sock, int(sys.argv[-1]))


def _be_child() -> None:
    silent = os.open(os.devnull, os.O_RDWR)  # the output of a native crash may contain a client's data
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_soft(resource.RLIMIT_CORE, 0)


def _read_until(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Read a child's answer; return it, and whether the child ended or answered in time."""
    said = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(said) <= MAX_ANSWER:
        if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
            return said, False
        piece = os.read(descriptor, MAX_ANSWER)
        if not piece:
            break
        said += piece
    return said, True
