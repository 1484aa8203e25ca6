"""The pool of pages."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.core.schedule.cache.kv_pool import KVPool


def test_pages_are_handed_out_once() -> None:
    pool = KVPool(10, 1)
    pages = [*pool.allocate(4), *pool.allocate(6)]
    assert sorted(pages) == list(range(10))
    assert pool.num_free == 0


def test_allocating_more_than_free_fails() -> None:
    with pytest.raises(AssertionError, match="3 pages asked for, 2 free"):
        KVPool(2, 1).allocate(3)


def test_a_page_cannot_be_freed_twice() -> None:
    pool = KVPool(10, 1)
    pages = pool.allocate(2)
    pool.free(pages[:1])
    with pytest.raises(AssertionError, match="free already"):
        pool.free(pages)


def test_a_page_cannot_be_freed_twice_at_once() -> None:
    pool = KVPool(10, 1)
    page = pool.allocate(1)
    with pytest.raises(AssertionError, match="twice at once"):
        pool.free(np.concatenate([page, page]))


def test_the_pool_counts_pages_ever_used() -> None:
    """New pages are given out in ascending order."""
    pool = KVPool(10, 1)
    pool.free(pool.allocate(4))
    assert pool.num_ever_used == 4
    pool.allocate(3)
    assert pool.num_ever_used == 4
    assert sorted(pool.allocate(3))[-2:] == [4, 5]
    assert pool.num_ever_used == 6
