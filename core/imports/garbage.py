"""Tunes Python's garbage collector for processes that serve for a long time.

torch, transformers and a model create about 400,000 objects that live until the process ends. A full collection traverses
all of them: for 0.3 s no step runs, at an unpredictable time. So the objects that exist once a process is ready are
excluded from collection (`gc.freeze`). Later cycles are collected as usual.

Only the owner of a process calls this, never library code, because it affects all objects of the process.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Disable collection while libraries are imported, which creates hardly any garbage; then freeze their objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.freeze()


def settle() -> None:
    """Collect garbage, then freeze all remaining objects. Call it once a process has created what it keeps."""
    gc.collect()
    gc.freeze()
