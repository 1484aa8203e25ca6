"""Recognizes that FlashInfer lacks a kernel that was not compiled ahead. Imports nothing but the standard library."""

from __future__ import annotations

import re

NAME = "MissingJITCacheError"
"""FlashInfer's exception for it, while FLASHINFER_DISABLE_JIT is set."""

_QUOTED = re.compile(rf"{NAME}: *([^\n]*)")


def missing_kernel(error: BaseException) -> str | None:
    """Return the name of the kernel that an error is about, or else FlashInfer's message; None for other errors.

    The error may be FlashInfer's own, have it as a cause or context, or quote it, as errors of other processes do.
    """
    chain = _chain(error)
    for each in chain:
        if type(each).__name__ == NAME:
            kernel = getattr(getattr(each, "spec", None), "name", None)
            return _first_line(kernel or str(each))
    quoted = next(filter(None, (_QUOTED.search(str(each)) for each in chain)), None)
    return _first_line(quoted[1]) if quoted else None


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and those that led to it."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return chain


def _first_line(text: str) -> str:
    return (text.strip() or "no message").splitlines()[0][:300]
