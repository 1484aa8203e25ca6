"""Rules for files that clients store: purposes, names and lifetimes.

Knows nothing of forms and stores.
"""

from __future__ import annotations

from llmfw.core.base.errors import RequestError

MIB = 2**20
MAX_FILE_BYTES = 512 * MIB
MAX_PART_BYTES = 64 * MIB

PURPOSES = ("batch", "user_data", "assistants", "fine-tune", "vision", "evals")
"""Purposes that OpenAI's clients may use. Batch jobs read files of purpose "batch"; other files are only kept."""

OUTPUT_PURPOSE = "batch_output"
"""Purpose of files that batch jobs write. Clients cannot use it."""

ANCHOR = "created_at"
MIN_SECONDS, MAX_SECONDS = 3600, 30 * 24 * 3600
DEFAULT_SECONDS = {"batch": MAX_SECONDS}
"""Default lifetime by purpose; files of other purposes stay until they are deleted."""


def check_purpose(purpose: str) -> str:
    """Return a client's purpose of a file; raise RequestError if it is invalid."""
    if purpose not in PURPOSES:
        reason = ", which is for files that the server makes" if purpose == OUTPUT_PURPOSE else ""
        raise RequestError(
            f"purpose is {purpose[:100]!r}{reason}; it must be one of {', '.join(PURPOSES)}", param="purpose"
        )
    return purpose


def check_listed_purpose(purpose: str | None) -> str | None:
    """Return the purpose to list files of; raise RequestError if it does not exist."""
    known = (*PURPOSES, OUTPUT_PURPOSE)
    if purpose is not None and purpose not in known:
        raise RequestError(
            f"purpose is {purpose[:100]!r}; it must be one of {', '.join(known)}", param="purpose"
        )
    return purpose


def check_filename(filename: str, param: str) -> str:
    """Return a file's name; raise RequestError if it is empty. Any other name is valid: it is never used as a path."""
    if not filename:
        raise RequestError("the file has no name; send one, any will do", param=param)
    return filename


def check_anchor(anchor: str, param: str) -> str:
    """Return the start of a lifetime; raise RequestError if it is not the file's creation."""
    if anchor != ANCHOR:
        raise RequestError(f"{param} is {anchor[:100]!r}; it must be {ANCHOR!r}", param=param)
    return anchor


def check_seconds(seconds: int | str, param: str) -> int:
    """Return a lifetime in seconds; raise RequestError if it is out of range."""
    text = str(seconds)
    if text.isascii() and text.isdigit() and len(text) < 10 and MIN_SECONDS <= int(text) <= MAX_SECONDS:
        return int(text)
    raise RequestError(
        f"{param} is {text[:100]!r}; it must be a number of seconds from {MIN_SECONDS} (an hour) to"
        f" {MAX_SECONDS} (30 days)",
        param=param,
    )


def lifetime_of(purpose: str, seconds: int | None) -> int | None:
    """Return the seconds after which a file expires; None: never.

    Args:
        seconds: lifetime that the client asks for, or None.
    """
    return DEFAULT_SECONDS.get(purpose) if seconds is None else seconds
