"""The main module of the process of a rank other than 0: computes the forward passes that rank 0 plans.

`llmfw.core.engine.ranks.rank_processes` starts this process. It loads its part of the model, in step with rank 0,
and ends when rank 0 ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from pathlib import Path

from llmfw.core.base.errors import LLMFWError, RankError
from llmfw.core.base.log import LogTarget, setup_logging
from llmfw.core.base.step import StepInput, decode
from llmfw.core.imports import garbage
from llmfw.core.ipc.child import settle
from llmfw.core.ipc.wire import encode, failure_of

from ..ranks.rank_channel import DONE, RankChannel
from ..ranks.rank_launch import RankLaunch, read_launch

logger = logging.getLogger(__name__)

QUIET = {"info": "warning"}
"""Log level of a rank, by that of the engine: rank 0 logs what all ranks do."""


def main() -> None:
    """Run a rank to its end."""
    settle()
    launch = read_launch(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, name="llmfw-parent-watch", daemon=True).start()
    config = launch.config
    level = QUIET.get(config.log_level, config.log_level)
    setup_logging(level, LogTarget(config.log_format, config.log_file))
    channel = RankChannel(socket.socket(fileno=launch.socket), "rank 0")
    try:
        _serve(launch, channel)
    except Exception as error:
        if not isinstance(error, LLMFWError):
            logger.exception("Rank %d failed", launch.rank)
        with contextlib.suppress(RankError):  # rank 0 has ended, and has said why
            channel.send(encode(failure_of(error)))
    sys.stderr.flush()
    os._exit(1)  # torch's threads may wait for ranks that have ended


def _serve(launch: RankLaunch, channel: RankChannel) -> None:
    """Load the rank's part of the model, and compute steps until rank 0 ends.

    Raises:
        LLMFWError: the model cannot be served, or another rank has ended.
    """
    with garbage.importing():
        from .process import import_engine

        import_engine()
        import torch

        from ..generation.rank_worker import RankWorker
    worker = RankWorker(launch.config, launch.rank, channel.send, Path(launch.rendezvous))
    worker.load()
    worker.build(channel.receive())
    garbage.settle()
    channel.send(DONE)
    with torch.inference_mode():
        while True:
            worker.compute(decode(channel.receive(), StepInput))


def _end_with_parent() -> None:
    """End this process when stdin ends, whatever the main thread does."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
