"""Sends messages between the API and the engine process: frames of msgpack over a pair of connected sockets.

Each client creates a pair, and the engine process inherits one end of it: no socket is in the file system, no
other process can connect, and no thread is needed in between. The engine first sends an `EngineInfo`, or an
`EngineFailed`. Then the client sends `ToEngine` messages and receives `FromEngine` messages. The events of a
step for one client's requests come in one `EventBatch`. This module handles the format of the messages, not
their meaning.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import IO

import msgspec

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.described import message_of
from llmfw.core.base.engine_info import EngineFailed, FromEngine
from llmfw.core.base.errors import EngineError, LLMFWError, RequestError

from .flight_recorder import FlightFiles

_PREFIX = 8  # bytes that hold the length of a frame
_BUFFER = 4 * 2**20  # size of a socket's send buffer in bytes; the system may allow less


class Launch(msgspec.Struct, frozen=True):
    """First data that the engine process reads from its stdin.

    Attributes:
        config: settings of the engine.
        sockets: file descriptors of the inherited sockets, one for each client.
        heartbeat: file descriptor of the shared memory for progress reports; None: the engine reports no
            progress.
        flight: shared memory of the flight recorder; None: nothing is recorded.
    """

    config: EngineConfig
    sockets: Sequence[int]
    heartbeat: int | None = None
    flight: FlightFiles | None = None


_encoder = msgspec.msgpack.Encoder()
_engine_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
_launch_decoder = msgspec.msgpack.Decoder(Launch)

encode = _encoder.encode
decode_from_engine = _engine_decoder.decode


def new_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected, non-blocking sockets: one for the client, one for the engine process."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return ours, theirs


def framed(payload: bytes) -> bytes:
    """Return a frame: the payload's length (8 bytes, big-endian), then the payload."""
    return len(payload).to_bytes(_PREFIX, "big") + payload


class Frames:
    """Extracts payloads from a byte stream that arrives in pieces of any size."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def has_begun(self) -> bool:
        """Whether a part of the next payload has arrived."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the payloads that are now complete."""
        rest, payloads, start = self._rest, [], 0
        rest += data
        while len(rest) - start >= _PREFIX:
            first = start + _PREFIX
            end = first + int.from_bytes(rest[start:first], "big")
            if end > len(rest):
                break
            payloads.append(bytes(rest[first:end]))
            start = end
        del rest[:start]
        return payloads


def write_launch(stream: IO[bytes], launch: Launch) -> None:
    """Write a `Launch` to the engine's stdin, as a frame of msgpack.

    The stream stays open. When it ends, the engine knows that the parent has exited.
    """
    stream.write(framed(encode(launch)))
    stream.flush()


def read_launch(stream: IO[bytes]) -> Launch:
    """Read the `Launch` that `write_launch` wrote.

    Raises:
        EOFError: the parent has ended, or this process was not started by a client.
    """
    return _launch_decoder.decode(read_frame(stream))


def read_frame(stream: IO[bytes]) -> bytes:
    """Wait for a frame with settings on a process's stdin; return its payload.

    Raises:
        EOFError: stdin ended before the end of the frame.
    """
    return _read_exactly(stream, int.from_bytes(_read_exactly(stream, _PREFIX), "big"))


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("stdin ended before the settings, which the process that starts this one writes there")
    return data


def failure_of(error: BaseException) -> EngineFailed:
    """Convert an exception to an `EngineFailed` message."""
    failed = EngineFailed(kind=type(error).__name__, message=message_of(error))
    if isinstance(error, RequestError):
        failed.param, failed.code = error.param, error.code
    return failed


def error_of(failed: EngineFailed) -> LLMFWError:
    """Convert an `EngineFailed` message back to an exception.

    The exception has its original class if that is LLMFWError or a subclass; otherwise it is an EngineError.
    """
    kinds: dict[str, type[LLMFWError]] = {cls.__name__: cls for cls in _subclasses(LLMFWError)}
    if failed.kind in kinds:
        error = kinds[failed.kind](failed.message)
        if isinstance(error, RequestError):
            error.param, error.code = failed.param or error.param, failed.code or error.code
        return error
    return EngineError(f"{failed.kind}: {failed.message}")


def _subclasses(cls: type[LLMFWError]) -> list[type[LLMFWError]]:
    return [cls, *(below for child in cls.__subclasses__() for below in _subclasses(child))]
