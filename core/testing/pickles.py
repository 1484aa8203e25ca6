"""Pickles that note when they are read: reading a pickle runs code that its author chose."""

from __future__ import annotations

import pickle
from typing import Any

times_read: list[int] = []
"""One entry for each time that a pickle of `noting_pickle` was read in this process."""


class _Noting:
    def __reduce__(self) -> tuple[Any, ...]:
        return note, ()


def note() -> None:
    """Note that a pickle is read."""
    times_read.append(len(times_read))


def noting_pickle() -> bytes:
    """Return a pickle that calls `note` when it is read."""
    return pickle.dumps(_Noting())
