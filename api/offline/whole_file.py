"""Writes a file as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from llmfw.core.base.errors import LLMFWError


class OutputError(LLMFWError):
    """A file cannot be written."""


@contextlib.contextmanager
def whole_file(path: Path, mark: str | None = None) -> Iterator[BinaryIO]:
    """Yield a file that replaces the file at `path` after the block. If the block raises, nothing changes.

    If `path` exists and is not a regular file (a pipe, a terminal, /dev/null), bytes are written to it
    directly.

    Args:
        mark: part of the temporary file's name; None: a random one. With a mark, a second attempt overwrites
            the temporary file that a crash has left. Set it only if no other process writes this path.

    Raises:
        OutputError: the file cannot be written; the message gives the reason.
    """
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                yield file
            return
        target = path.resolve()  # a symbolic link stays one
        temporary = target.with_name(f".{target.name}.{mark or secrets.token_hex(4)}.part")
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Raise OutputError if no file can be written at `path`, so that callers can fail before long work."""
    folder = path.resolve().parent
    if path.is_dir():
        raise OutputError(f"{str(path)!r} cannot be written: it is a folder")
    if not folder.is_dir():
        raise OutputError(f"{str(path)!r} cannot be written: there is no folder {str(folder)!r}")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{str(path)!r} cannot be written: the folder {str(folder)!r} is read-only")
