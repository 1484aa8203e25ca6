"""Tunes Python's garbage collector for processes that serve for a long time.

torch, transformers and a model create about 400,000 objects that live until the process ends. A full
collection traverses all of them, which stops all steps for 0.3 s at an unpredictable time. So the objects
that exist once a process is ready are excluded from collection (`gc.freeze`). Objects created later are
collected as usual.

Library code must not call `importing` and `settle`, because they affect all objects of the process.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

YOUNG_OBJECTS = 10_000
"""Number of new objects after which the collector looks at them; Python's default is 700.

The objects of running requests would be looked at many times before they are freed. Requests leave no
reference cycles, so there is little to find.
"""


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection within the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection while libraries are imported, and freeze their objects afterwards.

    Imports create hardly any garbage.
    """
    try:
        with paused():
            yield
    finally:
        gc.freeze()


def settle() -> None:
    """Collect garbage, then freeze all remaining objects. Call this once a process is ready to serve.

    From then on, the collector starts after YOUNG_OBJECTS new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
