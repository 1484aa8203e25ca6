"""Messages between rank 0 and another rank: frames over a pair of connected sockets.

Both sides wait for each other, because they compute every step together. No socket is in the file system.
"""

from __future__ import annotations

import contextlib
import socket

import msgspec

from llmfw.core.base.engine_info import EngineFailed
from llmfw.core.base.errors import RankError
from llmfw.core.ipc.wire import error_of, framed

_PREFIX = 8  # bytes that hold the length of a frame
_BUFFER = 4 * 2**20
DONE = b""
"""Answer of a rank that has done what it was to do."""


class RankChannel:
    """One end of the connection between rank 0 and another rank.

    Args:
        sock: connected, blocking socket.
        name: name of the other side in messages, such as "rank 1".
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self._socket = sock
        self._name = name
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def send(self, payload: bytes) -> None:
        """Send a frame.

        Raises:
            RankError: the other side has ended.
        """
        try:
            self._socket.sendall(framed(payload))
        except OSError as error:
            raise RankError(f"{self._name} has ended") from error

    def receive(self) -> bytes:
        """Wait for a frame; return its payload.

        Raises:
            RankError: the other side has ended.
        """
        return self._exactly(int.from_bytes(self._exactly(_PREFIX), "big"))

    def wait_done(self) -> None:
        """Wait until the other side has sent DONE.

        Raises:
            LLMFWError: the other side has sent a failure in its place.
            RankError: the other side has ended.
        """
        if (answer := self.receive()) != DONE:
            raise error_of(msgspec.msgpack.decode(answer, type=EngineFailed))

    def failure(self, wait_s: float) -> Exception | None:
        """Return the failure that the other side has sent before it ended; None: it has sent none within `wait_s`."""
        self._socket.settimeout(wait_s)
        try:
            while (answer := self.receive()) == DONE:
                pass
            return error_of(msgspec.msgpack.decode(answer, type=EngineFailed))
        except (RankError, msgspec.MsgspecError):
            return None
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        """Close this side, which ends the other one."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except OSError as error:
                raise RankError(f"{self._name} does not answer: {error}") from error
            if not piece:
                raise RankError(f"{self._name} has ended")
            data += piece
        return bytes(data)
