"""A log file that may be moved away while processes write to it, as log rotation does."""

from __future__ import annotations

import os

from .errors import ConfigError
from .user_path import user_path


class LogFile:
    """A text stream that appends to a file, and opens it again if it is no longer at its path.

    Each `write` is one system call, so lines of several processes do not mix. Looks at the path before each
    write.

    Args:
        path: path of the file; its folder must exist.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = user_path(path, "--log-file")
        try:
            self._descriptor = self._opened()
        except OSError as error:
            raise ConfigError(
                f"--log-file {path!r} cannot be written: {error.strerror}; name a file in a folder that exists "
                "and that this user may write"
            ) from error

    def write(self, text: str) -> int:
        """Append a text; return its number of characters. Raises OSError, for example if the disk is full."""
        if not self._is_in_place():
            descriptor = self._opened()  # first, so that the old file stays if the new one cannot be opened
            os.close(self._descriptor)
            self._descriptor = descriptor
        os.write(self._descriptor, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _opened(self) -> int:
        # O_NONBLOCK: opening a pipe without a reader fails; otherwise it would block the process.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o640)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False
