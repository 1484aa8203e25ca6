"""The observer `request-log`: writes one line of JSON for each ended request."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from llmfw.core import ConfigError, RequestEnded, RequestEvent, RequestObserver
from llmfw.core.base.user_path import user_path

Field = Literal[
    "time",
    "id",
    "task",
    "tenant",
    "priority",
    "deferrable",
    "prompt_tokens",
    "cached_tokens",
    "max_tokens",
    "output_tokens",
    "queued_s",
    "first_token_s",
    "duration_s",
    "finish",
    "error_kind",
    "error",
    "restarts",
    "model",
    "trace_id",
]
FIELDS: tuple[Field, ...] = (
    "time",
    "id",
    "tenant",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "queued_s",
    "first_token_s",
    "duration_s",
    "finish",
    "error_kind",
)
"""Default fields of a line. They leave out `error`, because an error message may quote a client's text."""


class RequestLog(RequestObserver):
    """Writes lines to stdout, or appends lines to a file, which may be moved or removed at any time."""

    class Options(RequestObserver.Options, frozen=True):
        """
        Attributes:
            path: file to append to; its folder must exist. "-" is the standard output.
            fields: fields of a line, in this order. `time` is the end of the request, in seconds since the
                epoch; times with `_s` are in seconds.
        """

        path: str = "-"
        fields: tuple[Field, ...] = FIELDS

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if not options.fields:
            raise ConfigError("request-log has no fields; leave the option out, or name some")
        self._path = None if options.path == "-" else user_path(options.path, "request-log")
        self._file: BinaryIO | None = None
        if self._path is not None:
            try:
                self._file = self._opened(self._path)
            except OSError as error:
                raise ConfigError(
                    f"request-log cannot write {str(self._path)!r}: {error.strerror}"
                ) from error

    def observe(self, events: Sequence[RequestEvent]) -> None:
        lines = [self._line(event) for event in events if isinstance(event, RequestEnded)]
        if lines:
            self._write(b"".join(lines))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _line(self, event: RequestEnded) -> bytes:
        values = _values(event)
        return msgspec.json.encode({name: values[name] for name in self.options.fields}) + b"\n"

    def _write(self, lines: bytes) -> None:
        if self._path is None:
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
            return
        if self._file is None or not _is_at(self._file, self._path):
            if self._file is not None:
                self._file.close()
            self._file = self._opened(self._path)
        _write_all(self._file, lines)

    @staticmethod
    def _opened(path: Path) -> BinaryIO:
        return open(path, "ab", buffering=0)


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file is still at its path. Log rotation moves files away."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data to an unbuffered file, in several writes if necessary.

    On an error, remove what was written.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        if 0 < len(rest) < len(data):
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), file.tell() - (len(data) - len(rest)))
        raise


def _values(event: RequestEnded) -> dict[str, Any]:
    """Return all fields of a line."""
    started = event.started
    return {
        "time": round(event.at, 3),
        "id": started.id,
        "task": started.task,
        "tenant": started.tenant,
        "priority": started.priority,
        "deferrable": started.deferrable,
        "prompt_tokens": started.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "max_tokens": started.max_tokens,
        "output_tokens": event.output_tokens,
        "queued_s": round(event.queued_s, 6),
        "first_token_s": None if event.first_token_s is None else round(event.first_token_s, 6),
        "duration_s": round(event.duration_s, 6),
        "finish": event.finish,
        "error_kind": event.error_kind,
        "error": event.error,
        "restarts": event.restarts,
        "model": started.model,
        "trace_id": started.traceparent[3:35],
    }
