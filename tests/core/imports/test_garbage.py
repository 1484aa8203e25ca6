"""What a process keeps for good is not walked through again; cycles that come later are still collected."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from llmfw.core.imports import garbage


class Node:
    """May be part of a cycle."""

    other: Node


def cycle() -> Node:
    first, second = Node(), Node()
    first.other, second.other = second, first
    return first


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Undo what a test does, and freeze again what was: searching it would take a fifth of a second each time."""
    had_frozen, threshold = gc.get_freeze_count() > 0, gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.enable()
    if had_frozen:
        gc.freeze()


def test_settle_freezes_live_objects_and_frees_garbage() -> None:
    kept, dead = cycle(), weakref.ref(cycle())
    garbage.settle()
    assert dead() is None
    assert all(each is not kept for each in gc.get_objects())


def test_later_cycles_are_collected() -> None:
    garbage.settle()
    later = weakref.ref(cycle())
    gc.collect()
    assert later() is None


def test_a_settled_process_collects_seldom() -> None:
    garbage.settle()
    before = [each["collections"] for each in gc.get_stats()]
    kept = [cycle() for _ in range(garbage.YOUNG_OBJECTS // 10)]  # two objects each, and their dictionaries
    assert [each["collections"] for each in gc.get_stats()] == before
    del kept


def test_imports_pause_collection_and_freeze_their_objects() -> None:
    with garbage.importing():
        assert not gc.isenabled()
        brought = cycle()
    assert gc.isenabled()
    assert all(each is not brought for each in gc.get_objects())


def test_a_failed_import_keeps_the_collector_on() -> None:
    with pytest.raises(ImportError), garbage.importing():
        raise ImportError
    assert gc.isenabled()
