"""Starts the processes of ranks 1 and up, sends them steps, and notices their end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import RankError
from llmfw.core.ipc.child import start_child
from llmfw.core.ipc.environment import child_environment

from .rank_channel import RankChannel
from .rank_launch import RankLaunch, write_launch

if TYPE_CHECKING:
    from llmfw.core.model.parallel.rank_group import RankGroup

COMMAND = (sys.executable, "-m", "llmfw.core.engine.process.rank_main")
LAST_WORDS_S = 2.0
"""Time for a rank that has failed to say why."""
END_S = 5.0


class RankProcesses:
    """The processes of ranks 1 and up, as rank 0 sees them. They end with this object.

    Args:
        config: settings of the engine.
        command: command line of a rank; None: that of llmfw's own process.
    """

    def __init__(self, config: EngineConfig, command: Sequence[str] | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="llmfw-ranks-")  # only this user can read it
        self._rendezvous = Path(self._folder) / "store"
        self._ends = _Ends()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[RankChannel] = []
        closing = (self._ends, self._processes, self._channels, self._folder)
        self._close = weakref.finalize(self, _close, *closing)
        for rank in range(1, config.tp):
            self._start(config, rank, command or COMMAND)

    @classmethod
    def of(cls, config: EngineConfig) -> RankProcesses | None:
        """Start the ranks that the settings ask for; return None if there is rank 0 alone."""
        return cls(config) if config.tp > 1 else None

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank from 1."""
        return [process.pid for process in self._processes]

    @property
    def have_ended(self) -> bool:
        """Whether a rank has ended, so that no further step can be computed."""
        return self._ends.has_come.is_set()

    def check(self, wait_s: float = 0) -> None:
        """Raise RankError if a rank has ended, or ends within `wait_s`."""
        if self._ends.has_come.wait(wait_s):
            raise RankError(self._ends.reason)

    def call_when_ended(self, function: Callable[[], None]) -> None:
        """Register a function to call, in another thread, when a rank has ended."""
        self._ends.call(function)

    def join(self) -> RankGroup:
        """Wait until all ranks have started; return the group of them and rank 0.

        Raises:
            LLMFWError: a rank has failed.
        """
        from llmfw.core.model.parallel.rank_group import RankGroup  # imports torch, which takes seconds

        self.wait_done()
        group = RankGroup(0, len(self._processes) + 1, self._rendezvous)
        self.wait_done()
        shutil.rmtree(self._folder, ignore_errors=True)  # a SIGKILL would leave it behind
        return group

    def wait_done(self) -> None:
        """Wait until all ranks have done what they were to do.

        Raises:
            LLMFWError: a rank has failed.
        """
        for channel in self._channels:
            channel.wait_done()

    def send(self, payload: bytes) -> None:
        """Send a message to all ranks.

        Raises:
            RankError: a rank has ended.
        """
        for channel in self._channels:
            channel.send(payload)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Within the block, replace a RankError by the failure of the rank that has caused it; end all ranks
        if the block fails."""
        try:
            yield
        except BaseException as error:
            cause = self._cause() if isinstance(error, RankError) else None
            self.close()
            if cause is not None:
                raise cause from error
            raise

    def close(self) -> None:
        """End the ranks."""
        self._close()

    def _cause(self) -> Exception | None:
        """Return the failure that a rank has sent, or else how a rank has ended; None if neither is known."""
        for channel in self._channels:
            if failure := channel.failure(LAST_WORDS_S):
                return failure
        if self._ends.has_come.wait(LAST_WORDS_S):
            return RankError(f"{self._ends.reason} at the start")
        return None

    def _start(self, config: EngineConfig, rank: int, command: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_child(
                command, child_environment(), stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]
            )
            launch = RankLaunch(config, rank, str(self._rendezvous), theirs.fileno())
            self._processes.append(process)
            self._channels.append(RankChannel(ours, f"rank {rank}"))
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the process has ended, which `wait_done` notices
                write_launch(process.stdin, launch)
        name = f"llmfw-rank-{rank}-wait"
        threading.Thread(target=_watch, args=(process, rank, self._ends), name=name, daemon=True).start()


class _Ends:
    """Notes the first unexpected end of a rank. Any thread may use it."""

    def __init__(self) -> None:
        self.reason = ""
        self.has_come = threading.Event()
        self.is_expected = False
        self._functions: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def call(self, function: Callable[[], None]) -> None:
        with self._lock:
            self._functions.append(function)
            has_come = self.has_come.is_set()
        if has_come:
            function()

    def note(self, reason: str) -> None:
        with self._lock:
            if self.is_expected or self.has_come.is_set():
                return
            self.reason = reason
            self.has_come.set()
            functions = list(self._functions)
        for function in functions:
            function()


def _watch(process: subprocess.Popen[bytes], rank: int, ends: _Ends) -> None:
    """Wait for the end of a process, and note it. Holds no reference to `RankProcesses`."""
    ends.note(_how_it_ended(rank, process.wait()))


def _close(
    ends: _Ends, processes: list[subprocess.Popen[bytes]], channels: list[RankChannel], folder: str
) -> None:
    ends.is_expected = True
    for channel in channels:
        channel.close()
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
    for process in processes:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def _how_it_ended(rank: int, returncode: int) -> str:
    if returncode >= 0:
        return f"rank {rank} ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "an unknown signal"
    return f"rank {rank} was killed by {name} (signal {-returncode})"
