"""Writes a crash report when the engine ends unexpectedly, or an exception ends the server.

A report is written in a thread: neither a restart of the engine nor a request waits for the disk.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from llmfw.core.base.bare_traceback import bare_traceback
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.described import message_of
from llmfw.core.base.recent_log import RecentLogHandler
from llmfw.core.base.text_ring import TextRing
from llmfw.core.client.end_recorder import EndRecorder
from llmfw.core.client.engine_end import EngineEnd
from llmfw.core.ipc.step_ring import StepRecord

from .crash_folder import CrashFolder
from .facts import free_disk, machine, plugins, versions
from .secrets import Secrets
from .settings import secrets_of, shown_settings

logger = logging.getLogger(__name__)

FORMAT = 1
"""Version of the format of report.json."""
LOG_BYTES = 64 * 1024
"""Size of the last lines of the API process's log that are kept, in bytes."""
FINISH_S = 3.0
"""Seconds that the end of the server waits for a report that is being written."""
MESSAGE_LEFT_OUT = "left out, as it may quote a request; --crash-details keeps it"


class CrashReports:
    """Writes the crash reports of one server.

    Args:
        folder: folder of the reports.
        engine: settings of the first model's engine.
        server: settings of the server; `crash_details` keeps the messages of exceptions.

    Attributes:
        log_handler: handler that must receive the log of this process.
    """

    def __init__(self, folder: CrashFolder, engine: EngineConfig, server: ServerConfig) -> None:
        self._folder = folder
        self._keeps_messages = server.crash_details
        self._engine = engine
        self._server = server
        self._secrets = Secrets(secrets_of(server))
        self._log = TextRing(memoryview(bytearray(LOG_BYTES)))
        self.log_handler = RecentLogHandler(self._log, keeps_messages=self._keeps_messages)
        self._writing: threading.Thread | None = None

    def new_recorder(self, engine: EngineConfig) -> EndRecorder:
        """Return the recorder of one engine process, which reports to this object.

        Args:
            engine: settings of this engine, such as its model.
        """
        report = partial(self.add_engine_end, engine=engine)
        return EndRecorder(report, keeps_messages=self._keeps_messages)

    def tidy(self) -> None:
        """Remove unfinished reports that killed servers left in the folder. Call it at the start, once the log is set up."""
        self._folder.remove_unfinished()

    def add_engine_end(self, end: EngineEnd, engine: EngineConfig | None = None) -> None:
        """Report an unexpected end of an engine process.

        Args:
            engine: settings of this engine; None: those of the server's first one.
        """
        engine = engine or self._engine
        facts = {
            "which": engine.place.label,
            "reason": end.reason,
            **self._message(end.message),
            "exit_code": end.returncode if end.returncode >= 0 else None,
            "signal": _signal_name(end.returncode),
            "phase": end.phase.name.lower(),
            "num_step_tokens": end.num_step_tokens,
            "lived_s": round(end.lived_s, 3),
            "engine": None if end.info is None else msgspec.to_builtins(end.info),
            "recorded_steps": engine.record_steps,
            "settings": shown_settings(engine, self._server),
        }
        texts = {
            "steps.jsonl": "".join(map(_step_line, end.steps)),
            "stacks.txt": end.stacks,
            "engine.log": end.log,
        }
        self._begin(_what(end), facts, texts)

    def add_exception(self, error: BaseException) -> None:
        """Report an exception that ends the server."""
        message = message_of(error)
        facts = {
            "reason": f"the server failed: {type(error).__name__}",
            **self._message(message),
            "recorded_steps": self._engine.record_steps,
            "settings": shown_settings(self._engine, self._server),
        }
        self._begin("server-failed", facts, {"stacks.txt": bare_traceback(error) + "\n"})

    def finish(self, timeout_s: float = FINISH_S) -> None:
        """Wait until the report that is being written is complete, or the time is over."""
        if self._writing is not None:
            self._writing.join(timeout_s)

    def _message(self, message: str) -> dict[str, str]:
        if not message:
            return {}
        return {"message": message if self._keeps_messages else MESSAGE_LEFT_OUT}

    def _begin(self, what: str, facts: Mapping[str, Any], texts: dict[str, str]) -> None:
        """Write a report in a thread."""
        if self._writing is not None and self._writing.is_alive():
            logger.warning("No crash report is written (%s): the last one is still being written", what)
            return
        report = {"format": FORMAT, "what": what, "time": time.time(), **facts}
        texts = {**texts, "api.log": self._log.text()}
        arguments = (what, report, texts)
        # A daemon: a disk that does not answer must not keep the server from ending.
        self._writing = threading.Thread(
            target=self._write, args=arguments, name="llmfw-crash-report", daemon=True
        )
        self._writing.start()

    def _write(self, what: str, report: dict[str, Any], texts: dict[str, str]) -> None:
        try:
            report |= {
                "has_messages": self._keeps_messages,
                "versions": versions(),
                "plugins": plugins(),
                "machine": machine() | {"free_disk": free_disk(self._folder.path.parent)},
            }
            plain = self._secrets.hide_in(msgspec.to_builtins(report, enc_hook=str))
            files = {name: self._secrets.hide(text) for name, text in texts.items() if text}
            path = self._folder.write(what, {"report.json": json.dumps(plain, indent=2) + "\n", **files})
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the server goes on
            logger.warning(
                "No crash report could be written to %s: %s: %s",
                self._folder.path,
                type(error).__name__,
                error,
            )
            return
        logger.error("A crash report is in %s; `llmfw debug bundle` packs it for a bug report", path)


def _what(end: EngineEnd) -> str:
    """Return a short text about how an engine ended, for the name of the report."""
    if end.has_hung:
        return "engine-hung"
    if end.info is None:
        return "engine-not-started"
    return "engine-failed" if end.returncode >= 0 else "engine-killed"


def _signal_name(returncode: int) -> str | None:
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _step_line(step: StepRecord) -> str:
    sizes = step.sizes._asdict()
    return json.dumps({"number": step.number, "started_at": round(step.started_at, 6), **sizes}) + "\n"
