"""Rules for the files that clients store: allowed purposes, sizes and lifetimes.

Does not depend on forms or stores.
"""

from __future__ import annotations

from llmfw.core.base.errors import RequestError

MIB = 2**20
MAX_FILE_BYTES = 512 * MIB
MAX_PART_BYTES = 64 * MIB

PURPOSES = ("batch", "user_data", "assistants", "fine-tune", "vision", "evals")
"""Purposes that clients may give, as in OpenAI's API. Only "batch" matters: batch jobs read such files."""

OUTPUT_PURPOSE = "batch_output"
"""Purpose of the files that batch jobs write. Clients must not upload files with it."""

ANCHOR = "created_at"
MIN_SECONDS, MAX_SECONDS = 3600, 30 * 24 * 3600
DEFAULT_SECONDS = {"batch": MAX_SECONDS}
"""Default lifetime of files by purpose. Files of other purposes stay until they are deleted."""


def check_purpose(purpose: str) -> str:
    """Return the purpose of a client's new file; raise RequestError if it is not one of PURPOSES."""
    if purpose not in PURPOSES:
        reason = ", which is for files that the server makes" if purpose == OUTPUT_PURPOSE else ""
        raise RequestError(
            f"purpose is {purpose[:100]!r}{reason}; it must be one of {', '.join(PURPOSES)}", param="purpose"
        )
    return purpose


def check_listed_purpose(purpose: str | None) -> str | None:
    """Return the purpose by which a client filters its files; raise RequestError if it is unknown."""
    known = (*PURPOSES, OUTPUT_PURPOSE)
    if purpose is not None and purpose not in known:
        raise RequestError(
            f"purpose is {purpose[:100]!r}; it must be one of {', '.join(known)}", param="purpose"
        )
    return purpose


def check_filename(filename: str, param: str) -> str:
    """Return a file's name; raise RequestError if it is empty. Names are never used as paths."""
    if not filename:
        raise RequestError("the file has no name; send one, any will do", param=param)
    return filename


def check_anchor(anchor: str, param: str) -> str:
    """Return the event at which a lifetime starts; raise RequestError if it is not the file's creation."""
    if anchor != ANCHOR:
        raise RequestError(f"{param} is {anchor[:100]!r}; it must be {ANCHOR!r}", param=param)
    return anchor


def check_seconds(seconds: int | str, param: str) -> int:
    """Return a lifetime in seconds; raise RequestError if it is not a number or not allowed."""
    text = str(seconds)
    if text.isascii() and text.isdigit() and len(text) < 10 and MIN_SECONDS <= int(text) <= MAX_SECONDS:
        return int(text)
    raise RequestError(
        f"{param} is {text[:100]!r}; it must be a number of seconds from {MIN_SECONDS} (an hour) to"
        f" {MAX_SECONDS} (30 days)",
        param=param,
    )


def lifetime_of(purpose: str, seconds: int | None) -> int | None:
    """Return the lifetime of a file in seconds; None if it never expires.

    Args:
        seconds: lifetime that the client asked for; None: the default of the purpose.
    """
    return DEFAULT_SECONDS.get(purpose) if seconds is None else seconds
