"""Worker process: forks a child for each image, which decodes it within limits and ends.

The worker itself never reads a byte of an image. Its children can open no files or sockets, can write no more than
a picture's pixels, and are killed when they have answered or their time is up.
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

import msgspec

from llmfw.core.ipc.child import end_with, settle
from llmfw.core.ipc.resource_limits import limited, set_soft
from llmfw.core.ipc.wire import Frames, framed

from .limits import ImageLimits, ImageRefusedError
from .messages import Decoded, FromWorker, Job, Ready, Refused, Unable, decode_job, decode_outcome, encode

MAX_ANSWER = 4096  # bytes of a child's answer

HINT = "images need Pillow, which is not installed; the operator can install it: pip install 'llmfw-engine[images]'"


class Worker:
    """Event loop of a worker process.

    Args:
        sock: socket connected to the API process.
        memory: descriptor of the memory file for files and pixels.
    """

    def __init__(self, sock: socket.socket, memory: int) -> None:
        self._sock = sock
        self._memory = memory

    def run(self) -> None:
        """Serve until the API process closes the socket."""
        try:
            from .picture import warm_up
        except ImportError:
            self._send(Unable(HINT))
            return
        warm_up()
        gc.collect()
        gc.freeze()  # otherwise garbage collection in a child would write to shared pages and copy them
        self._send(Ready())
        frames = Frames()
        while data := self._sock.recv(2**16):
            for payload in frames.feed(data):
                self._send(self._answer(decode_job(payload)))

    def _answer(self, job: Job) -> FromWorker:
        """Decode an image in a child process."""
        reading, writing = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                end_with(parent)
                os.close(reading)
                self._sock.close()
                _be_child(self._memory, writing, job)
            finally:
                os._exit(1)
        os.close(writing)
        try:
            said, in_time = _read_until(reading, monotonic() + job.limits.longest_s)
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if not in_time:
            return _too_slow(job.limits)
        with contextlib.suppress(msgspec.DecodeError):
            outcome: Decoded | Refused = decode_outcome(said)
            return outcome
        return _after_death(os.waitstatus_to_exitcode(status), job.limits)

    def _send(self, message: FromWorker) -> None:
        with contextlib.suppress(OSError):  # if the API process is gone, reading reports it
            self._sock.sendall(framed(encode(message)))


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


def _be_child(memory: int, writing: int, job: Job) -> None:
    """Decode an image, write its pixels and the answer, and exit."""
    from .picture import decode

    silent = os.open(os.devnull, os.O_RDWR)  # the output of a native crash may contain a client's data
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_soft(resource.RLIMIT_CORE, 0)
    set_soft(resource.RLIMIT_FSIZE, 3 * job.limits.pixels)
    outcome: Decoded | Refused
    try:
        with limited(job.limits.cpu_s, job.limits.memory_mb):
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # from here on, nothing can be opened
            width, height, pixels = decode(os.pread(memory, job.size, 0), job.limits)
        _write(memory, pixels)
        outcome = Decoded(width, height)
    except ImageRefusedError as error:
        outcome = Refused(error.reason, str(error))
    except MemoryError:
        outcome = _too_large(job.limits)
    os.write(writing, encode(outcome))
    os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    view, place = memoryview(data), 0
    while place < len(view):
        place += os.pwrite(descriptor, view[place:], place)


def _too_slow(limits: ImageLimits) -> Refused:
    return Refused("cost", f"takes more than {limits.cpu_s:g} s to decode; scale it down, or save it anew")


def _too_large(limits: ImageLimits) -> Refused:
    return Refused(
        "cost", f"takes more than {limits.memory_mb} MiB of memory to decode; scale it down, or save it anew"
    )


def _after_death(exit_code: int, limits: ImageLimits) -> Refused:
    """Return the answer for an image whose child died with this exit code."""
    if exit_code == -signal.SIGXCPU:
        return _too_slow(limits)
    return Refused("crash", "made its decoder fail; save it anew with another program")


def main() -> None:
    """Run a worker on the socket at standard input; the first argument is the descriptor of the memory file."""
    settle()
    descriptor = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with socket.socket(fileno=descriptor) as sock:
        sock.setblocking(True)
        Worker(sock, int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
