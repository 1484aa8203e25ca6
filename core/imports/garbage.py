"""The interpreter's garbage collector in processes that serve for long.

torch, transformers and a model bring some 400,000 objects that stay until the process ends. A full collection walks
through all of them: 0.3 s in which no step runs, at a moment that nobody chooses. So what is there once a process is
ready is put aside (`gc.freeze`), and never looked at again. Cycles that come later are collected as ever.

It is called by whoever owns a process, never by a library's code: what else is in the process is not its business.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Collect nothing while libraries are imported, which make hardly any garbage; then put aside what they brought."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.freeze()


def settle() -> None:
    """Put aside all there is, once a process has what it keeps. Garbage goes first: weights may hang on it."""
    gc.collect()
    gc.freeze()
