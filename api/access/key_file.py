"""Reads files of API keys, which have one key per line."""

from __future__ import annotations

import os
import re
import select
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from llmfw.core.base.errors import ConfigError

from .key_file_limits import parse_limits
from .key_scopes import PREFIX, parse_scopes
from .key_table import UserKey
from .key_text import digest_of, is_short, split_name

MAX_BYTES = 16 * 2**20
PIPE_S = 10.0
"""Seconds within which a pipe must be written and closed."""


class KeyLines(msgspec.Struct, frozen=True):
    """The content of a key file.

    Attributes:
        keys: the keys, in the order of their lines; admin keys have no names.
        warnings: messages about problems of the file that do not prevent its use.
    """

    keys: tuple[UserKey, ...]
    warnings: tuple[str, ...]


def read_keys(path: Path, *, named: bool, may_wait: bool = True) -> KeyLines:
    """Return the keys in a file. Empty lines and lines that start with `#` are skipped.

    Args:
        named: whether lines are `NAME=KEY` or `NAME=sha256:HEX`, and may go on with ` scopes=SCOPE,SCOPE` and limits
            such as ` requests_per_minute=60`; if not, `KEY` or `sha256:HEX` (admin keys).
        may_wait: whether the file may be a pipe, for which this waits up to PIPE_S seconds.

    Raises:
        ConfigError: the file cannot be read, a line is invalid, or there is no key. The message shows no part
            of a key.
    """
    text, mode = _read(path, may_wait=may_wait)
    keys, warnings = [], []
    if stat.S_ISREG(mode) and mode & 0o077:
        warnings.append(
            f"{str(path)!r} has the permissions {mode & 0o777:03o}, so that other users may read or change it; "
            "run `chmod 600` on it"
        )
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        where = f"line {number} of {str(path)!r}"
        name, key, rest = _split_line(line) if named else ("", line, [])
        if named and not name:
            raise ConfigError(
                f"{where} is not NAME=KEY or NAME=sha256:HEX; a name has 1 to 64 letters, digits, '.', '_', '@' or "
                "'-', and '=' has no space before or after it"
            )
        try:
            keys.append(_user_key(name, key, rest))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if is_short(key):
            warnings.append(
                f"{where} has a key of {len(key)} characters, which could be guessed; use 32 random ones"
            )
    if not keys:
        raise ConfigError(f"{str(path)!r} holds no API key; write one on each line")
    return KeyLines(tuple(keys), tuple(warnings))


def _split_line(line: str) -> tuple[str, str, list[str]]:
    """Return the name and the key of a line, and the words that follow them.

    As in `split_name`, the name is "" if the line has none.
    """
    named_key, *rest = re.split(r"[ \t]+", line)
    name, key = split_name(named_key)
    return name, key, rest


def _user_key(name: str, key: str, rest: Sequence[str]) -> UserKey:
    """Return the key of a line, with the scopes and limits that follow it."""
    scopes = [word for word in rest if word.startswith(PREFIX)]
    if len(scopes) > 1:
        raise ConfigError(f"{PREFIX!r} is given twice; list all scopes in one")
    limits = parse_limits([word for word in rest if word not in scopes])
    return UserKey(name, digest_of(key), parse_scopes(scopes[0]) if scopes else None, limits)


def _read(path: Path, *, may_wait: bool) -> tuple[str, int]:
    """Return a file's text and mode."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode):
                data = file.read(MAX_BYTES + 1)
            elif may_wait and stat.S_ISFIFO(mode):
                data = _read_pipe(file.fileno(), path)
            else:
                raise ConfigError(f"{str(path)!r} is not a regular file; give a file of API keys")
    except OSError as error:
        raise ConfigError(f"the API keys in {str(path)!r} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{str(path)!r} has more than {MAX_BYTES} bytes; is it a file of API keys?")
    try:
        return data.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        raise ConfigError(f"{str(path)!r} is not text in UTF-8; save it as UTF-8") from None


def _read_pipe(descriptor: int, path: Path) -> bytes:
    """Read a pipe to its end, such as `<(command)` of a shell.

    The pipe must have been opened without blocking.

    Raises:
        ConfigError: the pipe was not closed within PIPE_S seconds.
    """
    data, ends = b"", time.monotonic() + PIPE_S
    while len(data) <= MAX_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
        if not ready:
            raise ConfigError(
                f"{str(path)!r} is a pipe that was not written and closed within {PIPE_S:.0f} s; give a file, or a "
                "command that ends sooner"
            )
        part = os.read(descriptor, 2**16)
        if not part:  # closed, or never opened for writing
            break
        data += part
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. If it is a pipe, do not wait for its other end to be opened."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
