"""What tests leave behind is frozen once it is much, and garbage is not."""

from __future__ import annotations

import gc
import weakref

import pytest

from .garbage import freeze_if_many


class Node:
    """May be part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


def is_frozen(node: Node) -> bool:
    return all(each is not node for each in gc.get_objects())


@pytest.mark.parametrize("most", [0, 10**9])
def test_only_many_objects_are_frozen(most: int) -> None:
    kept, dead = Node(), weakref.ref(Node())
    gc.collect()
    dead_later = weakref.ref(Node())
    freeze_if_many(most)
    assert is_frozen(kept) == (most == 0)
    assert dead() is None
    assert (dead_later() is None) == (most == 0)
