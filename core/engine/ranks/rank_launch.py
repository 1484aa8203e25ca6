"""What a rank's process is given at its start, by its stdin."""

from __future__ import annotations

from typing import IO

import msgspec

from llmfw.core.base.config import EngineConfig
from llmfw.core.ipc.wire import framed, read_frame


class RankLaunch(msgspec.Struct, frozen=True):
    """First data that a rank's process reads from its stdin, which then stays open until rank 0 ends.

    Attributes:
        config: settings of the engine.
        rank: number of the rank, from 1.
        rendezvous: path of the file by which the ranks find each other.
        socket: file descriptor of the inherited socket to rank 0.
    """

    config: EngineConfig
    rank: int
    rendezvous: str
    socket: int


def write_launch(stream: IO[bytes], launch: RankLaunch) -> None:
    """Write a `RankLaunch` to a rank's stdin."""
    stream.write(framed(msgspec.msgpack.encode(launch)))
    stream.flush()


def read_launch(stream: IO[bytes]) -> RankLaunch:
    """Read the `RankLaunch` that `write_launch` wrote.

    Raises:
        EOFError: rank 0 has ended, or has not started this process.
    """
    return msgspec.msgpack.decode(read_frame(stream), type=RankLaunch)
