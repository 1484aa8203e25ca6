"""The process that prepares prompts with images: `python -m llmfw.core.image_prompts.worker`, with a socket as its stdin."""

from __future__ import annotations

import resource
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.media_processor import MediaProcessor
from llmfw.core.ipc.child import settle
from llmfw.core.plugin.registry import Entry

from .messages import (
    PREFIX,
    Broken,
    Done,
    FromWorker,
    Launch,
    Ready,
    Refused,
    ToWorker,
    Work,
    decode_to_worker,
    framed,
)


class Worker:
    """Serves one API process until that closes the socket.

    Args:
        sock: socket connected to the API process.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._input = sock.makefile("rb")

    def run(self) -> None:
        """Build the processor, and prepare prompts one by one."""
        launch = self._receive()
        if not isinstance(launch, Launch):
            return
        sys.path[:] = launch.import_path
        entry = _entry(launch)
        try:
            processor: MediaProcessor = entry.build(entry.load(), launch.model)
        except Exception as error:  # noqa: BLE001 - whatever a foreign class raises is the cause to report
            self._send(Broken(str(error), traceback.format_exc()))
            return
        if launch.max_bytes is not None:
            _limit_memory(launch.max_bytes)
        self._send(Ready())
        while isinstance(work := self._receive(), Work):
            self._send(_done(processor, entry, work))

    def _receive(self) -> ToWorker | None:
        """Return the next message; None if the API process has closed the socket."""
        prefix = self._input.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return None
        (length,) = PREFIX.unpack(prefix)
        payload = self._input.read(length)
        return decode_to_worker(payload) if len(payload) == length else None

    def _send(self, message: FromWorker) -> None:
        self._sock.sendall(framed(message))


def _done(processor: MediaProcessor, entry: Entry, work: Work) -> FromWorker:
    try:
        return Done(processor.process(work.text, work.images))
    except RequestError as error:
        return Refused(str(error), error.param)
    except MemoryError:
        return Refused(
            "the images need more memory than is allowed for a request; send smaller ones", "messages"
        )
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything; other requests go on
        message = f"{entry.spoken} failed: {type(error).__name__}"
        return Broken(message, traceback.format_exc())


def _entry(launch: Launch) -> Entry:
    given = launch.entry.items()
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given
    }
    return Entry(**fields)


def _limit_memory(max_bytes: int) -> None:
    """Limit the address space to what is taken now and `max_bytes` more."""
    taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + max_bytes, taken + max_bytes))


def main() -> None:
    """Run the worker on the socket that is the standard input."""
    settle()
    # What a library prints must not reach the socket.
    with socket.socket(fileno=sys.stdin.fileno()) as sock:
        sock.setblocking(True)
        Worker(sock).run()


if __name__ == "__main__":
    main()
