"""Describes an exception by text that no client can influence: locations in the code, and types.

A message may quote credentials: as sent, decoded, escaped or in part. No filter finds all of these forms. And
a filter that hides the client's text lets the client choose which text is hidden.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

CAUSE = "The above exception was the direct cause of the following exception:"
CONTEXT = "During handling of the above exception, another exception occurred:"
MOST = 20
"""Maximum number of exceptions of a chain that are described. A chain may be longer than Python's stack."""


def bare_traceback(error: BaseException) -> str:
    """Return a traceback with the chain of causes, without the messages and notes of the exceptions.

    For an OSError, includes the system's text for the error number. Ends without a line break.
    """
    return "\n\n".join(_parts(error, set()))


def _parts(error: BaseException, seen: set[int]) -> Iterator[str]:
    """Yield the exceptions of a chain, starting with the first, and the sentences between them."""
    seen.add(id(error))
    before = error.__cause__
    if before is None and not error.__suppress_context__:
        before = error.__context__
    if before is not None and id(before) not in seen:
        if len(seen) == MOST:
            yield "Earlier exceptions are left out."
        else:
            yield from _parts(before, seen)
        yield CAUSE if before is error.__cause__ else CONTEXT
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            if id(each) not in seen and len(seen) < MOST:
                yield from _parts(each, seen)
                yield f"The above exception is in a group, {_type_of(error)}:"
    frames = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
    yield f"Traceback (most recent call last):\n{frames}{_type_of(error)}"


def _type_of(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, OSError) and isinstance(error.errno, int):
        return f"{name}: [Errno {error.errno}] {os.strerror(error.errno)}"
    return name
