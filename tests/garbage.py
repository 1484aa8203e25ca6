"""Keeps full collections of garbage short: many tests ask for one, and each walks through all that is not frozen."""

from __future__ import annotations

import gc

MOST = 50_000
"""Objects that a full collection walks through in about ten milliseconds."""


def freeze_if_many(most: int = MOST) -> None:
    """Collect garbage and freeze what is left, if more than `most` objects have outlived two collections."""
    if len(gc.get_objects(generation=2)) > most:
        gc.collect()
        gc.freeze()
