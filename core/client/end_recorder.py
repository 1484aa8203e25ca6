"""Records how an engine process ends, and reports unexpected ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from llmfw.core.base.engine_info import EngineFailed, EngineInfo
from llmfw.core.engine.process.heartbeat import Reading
from llmfw.core.ipc.flight_recorder import FlightFiles, FlightReader
from llmfw.core.ipc.wire import error_of

from .engine_end import EngineEnd


class EndRecorder:
    """Records the end of one engine process.

    These ends are expected, and are not reported: the client ended the process, SIGTERM ended it (exit code 0), or
    it could not start for a reason that llmfw knows, such as a wrong setting.

    Args:
        report: function that is called once, with an unexpected end; must not block.
        keeps_messages: whether recorded log lines have their texts, which may quote a request.
    """

    def __init__(self, report: Callable[[EngineEnd], None], *, keeps_messages: bool = False) -> None:
        self._report = report
        self._flight = FlightReader(keeps_messages=keeps_messages)
        self._is_done = False
        self._reason = ""
        self._message = ""
        self._has_hung = False
        self._started_at = time.monotonic()

    @property
    def files(self) -> FlightFiles:
        """File descriptors that the engine process must inherit; valid until `note_started`."""
        return self._flight.files

    def note_started(self) -> None:
        """Record that the process was started, or could not be, and close `files`."""
        self._flight.close_files()
        self._started_at = time.monotonic()

    def expect_end(self) -> None:
        """Record that the client is about to end the process."""
        self._is_done = True

    def note_failure(self, failed: EngineFailed, *, was_ready: bool) -> None:
        """Record the exception that ends the process.

        Args:
            was_ready: whether the engine had started.
        """
        if not was_ready and type(error_of(failed)).__name__ == failed.kind:
            self._is_done = True  # an error that llmfw raises for the user
        self._reason = f"the engine failed: {failed.kind}"
        self._message = failed.message

    def note_hang(self, reason: str) -> None:
        """Record that the process hangs."""
        self._reason, self._has_hung = reason, True

    def finish(self, returncode: int, how: str, reading: Reading, info: EngineInfo | None) -> None:
        """Report the end of the process, unless it was expected. Further calls do nothing.

        Also writes the stacks of a crash to stderr, where an engine without a recorder writes them itself.

        Args:
            returncode: exit code, or the negative number of the signal.
            how: `returncode` as text.
            reading: the last heartbeat.
            info: description of the engine; None if it was not ready yet.
        """
        if self._is_done or (returncode == 0 and not self._reason):
            return
        self._is_done = True
        stacks = self._flight.stacks()
        if not self._has_hung:
            sys.stderr.write(stacks)
        self._report(
            EngineEnd(
                reason=self._reason or how,
                message=self._message,
                returncode=returncode,
                has_hung=self._has_hung,
                phase=reading.phase,
                num_step_tokens=reading.num_tokens,
                lived_s=time.monotonic() - self._started_at,
                info=info,
                steps=self._flight.steps(),
                log=self._flight.log(),
                stacks=stacks,
            )
        )
