"""How messages travel between the API and the engine process: msgpack over ZeroMQ, one frame per message.

The engine binds a ROUTER socket, each client connects a DEALER. A client says `Hello` first and is answered with
`EngineInfo` (or `EngineFailed`); from then on it sends `ToEngine` messages and receives `FromEngine` messages: one
`StepOutput` per step that holds the events of its own requests. Nothing here depends on the number of clients.
This module knows the messages' form, not what they mean.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from typing import IO

import msgspec
import zmq

from ..config import EngineConfig
from ..errors import EngineError, LLMFWError, RequestError
from ..request import EngineFailed, FromEngine, ToEngine

_MAX_IPC_PATH = 100  # sun_path has 104 to 108 bytes, by system


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a client."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where the engine listens.

    Attributes:
        address: in ZeroMQ's form.
        directory: private to the user, holds the socket; removed once the two have met, else by whichever process
            lives longest. None for tcp.
    """

    address: str
    directory: str | None = None

    def remove(self) -> None:
        """Remove the directory, if it is still there."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


class Launch(msgspec.Struct, frozen=True):
    """What the engine process reads from its stdin before all else."""

    config: EngineConfig
    endpoint: Endpoint


ClientMessage = Hello | ToEngine

_encoder = msgspec.msgpack.Encoder()
_client_decoder: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_engine_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
_launch_decoder = msgspec.msgpack.Decoder(Launch)

encode = _encoder.encode
decode_from_client = _client_decoder.decode
decode_from_engine = _engine_decoder.decode


def new_endpoint() -> Endpoint:
    """Return an unused endpoint: ipc in a new directory that only this user can enter, else tcp on this host."""
    if not zmq.has("ipc"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return Endpoint(f"tcp://127.0.0.1:{probe.getsockname()[1]}")
    directory = tempfile.mkdtemp(prefix="llmfw-")
    if len(directory) > _MAX_IPC_PATH - len("/engine"):
        shutil.rmtree(directory)
        directory = tempfile.mkdtemp(prefix="llmfw-", dir="/tmp")
    return Endpoint(f"ipc://{directory}/engine", directory)


def open_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """Return a socket that never drops a message for want of room, and never blocks when it is closed."""
    sock = context.socket(kind)
    sock.set_hwm(0)
    sock.linger = 0
    return sock


def write_launch(stream: IO[bytes], launch: Launch) -> None:
    """Write to the engine's stdin: length, then msgpack. The stream stays open: its end means the parent's end."""
    payload = encode(launch)
    stream.write(len(payload).to_bytes(8, "big") + payload)
    stream.flush()


def read_launch(stream: IO[bytes]) -> Launch:
    """Read what `write_launch` wrote.

    Raises:
        EOFError: the parent ended, or nobody wrote: the process was not started by a client.
    """
    size = int.from_bytes(_read_exactly(stream, 8), "big")
    return _launch_decoder.decode(_read_exactly(stream, size))


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("stdin ended before the engine's settings; llmfw's API process writes them there")
    return data


def failure_of(error: BaseException) -> EngineFailed:
    """Return an exception as a message."""
    failed = EngineFailed(kind=type(error).__name__, message=str(error))
    if isinstance(error, RequestError):
        failed.param, failed.code = error.param, error.code
    return failed


def error_of(failed: EngineFailed) -> LLMFWError:
    """Return the exception that a message tells of: of the same class where it is one of `core.errors`."""
    kinds: dict[str, type[LLMFWError]] = {cls.__name__: cls for cls in _subclasses(LLMFWError)}
    if failed.kind in kinds:
        error = kinds[failed.kind](failed.message)
        if isinstance(error, RequestError):
            error.param, error.code = failed.param or error.param, failed.code or error.code
        return error
    return EngineError(f"{failed.kind}: {failed.message}")


def _subclasses(cls: type[LLMFWError]) -> list[type[LLMFWError]]:
    return [cls, *(below for child in cls.__subclasses__() for below in _subclasses(child))]
