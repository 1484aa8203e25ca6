"""What clients may ask for when they store a file: for what, how large, how long.

Knows nothing of forms and stores.
"""

from __future__ import annotations

from llmfw.core.base.errors import RequestError

MIB = 2**20
MAX_FILE_BYTES = 512 * MIB
MAX_PART_BYTES = 64 * MIB

PURPOSES = ("batch", "user_data", "assistants", "fine-tune", "vision", "evals")
"""Those that OpenAI's clients may name. Files of purpose "batch" are what batch jobs read; others are kept as data."""

OUTPUT_PURPOSE = "batch_output"
"""Of the files that batch jobs write; no client's to give."""

ANCHOR = "created_at"
MIN_SECONDS, MAX_SECONDS = 3600, 30 * 24 * 3600
DEFAULT_SECONDS = {"batch": MAX_SECONDS}
"""By purpose; files of all others stay until they are deleted."""


def check_purpose(purpose: str) -> str:
    """Return the purpose of a file that a client brings; raise RequestError if it is none."""
    if purpose not in PURPOSES:
        reason = ", which is for files that the server makes" if purpose == OUTPUT_PURPOSE else ""
        raise RequestError(
            f"purpose is {purpose[:100]!r}{reason}; it must be one of {', '.join(PURPOSES)}", param="purpose"
        )
    return purpose


def check_listed_purpose(purpose: str | None) -> str | None:
    """Return the purpose whose files a client wants to see; raise RequestError if there is no such purpose."""
    known = (*PURPOSES, OUTPUT_PURPOSE)
    if purpose is not None and purpose not in known:
        raise RequestError(
            f"purpose is {purpose[:100]!r}; it must be one of {', '.join(known)}", param="purpose"
        )
    return purpose


def check_filename(filename: str, param: str) -> str:
    """Return a file's name; raise RequestError if it has none. Any other is fine: it is never a path here."""
    if not filename:
        raise RequestError("the file has no name; send one, any will do", param=param)
    return filename


def check_anchor(anchor: str, param: str) -> str:
    """Return from when on a lifetime counts; raise RequestError if it is anything but the file's creation."""
    if anchor != ANCHOR:
        raise RequestError(f"{param} is {anchor[:100]!r}; it must be {ANCHOR!r}", param=param)
    return anchor


def check_seconds(seconds: int | str, param: str) -> int:
    """Return a lifetime in seconds; raise RequestError if it is none that is allowed."""
    text = str(seconds)
    if text.isascii() and text.isdigit() and len(text) < 10 and MIN_SECONDS <= int(text) <= MAX_SECONDS:
        return int(text)
    raise RequestError(
        f"{param} is {text[:100]!r}; it must be a number of seconds from {MIN_SECONDS} (an hour) to"
        f" {MAX_SECONDS} (30 days)",
        param=param,
    )


def lifetime_of(purpose: str, seconds: int | None) -> int | None:
    """Return after how many seconds a file expires; None: never.

    Args:
        seconds: what the client asks for, if it does.
    """
    return DEFAULT_SECONDS.get(purpose) if seconds is None else seconds
