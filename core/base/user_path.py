"""Paths as users type them: with `~` for a home folder."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import ConfigError

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")


def user_path(text: str | Path, what: str) -> Path:
    """Return a path with the home folder in place of `~` or `~USER`.

    Args:
        what: name of the setting that has the path, for the message, such as "--storage".

    Raises:
        ConfigError: there is no such user, or the user has no home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        user = str(text).partition("/")[0]
        raise ConfigError(
            f"{what} {str(text)!r}: no home folder of {user!r} is known; write the path in full"
        ) from error


def storage_folder(text: str) -> Path:
    """Return the folder of `--storage`.

    Raises:
        ConfigError: as in `user_path`; or the text is a URL. The message leaves its password out.
    """
    if (found := _URL.match(text)) is not None:
        raise ConfigError(
            f"--storage is a URL that starts with {found[0]!r}, and it must be a folder; a store in a database has options of its "
            "own, such as -o file_store.url=URL"
        )
    return user_path(text, "--storage")
