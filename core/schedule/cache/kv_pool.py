"""Pool of free KV cache pages.

The pool hands out page numbers. It does not handle tensors (see `KVStorage`), sharing of pages (`RadixCache`)
or sequences (`SequencePages`). Returning a page that is already free is an assertion error.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pages = npt.NDArray[np.int32]
"""Page numbers: [count]."""

FREE = -1


class KVPool:
    """A stack of free page numbers.

    Args:
        num_pages: total number of pages.
        page_size: number of tokens in one page.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self._num_free = num_pages
        self._least_free = num_pages
        self._marks = np.full(num_pages, FREE, dtype=np.int32)

    @property
    def num_free(self) -> int:
        """Number of free pages."""
        return self._num_free

    @property
    def num_ever_used(self) -> int:
        """Number of different pages handed out since start. These pages have the smallest page numbers."""
        return self.num_pages - self._least_free

    def allocate(self, count: int) -> Pages:
        """Take `count` free pages from the pool; return their numbers.

        Raises:
            AssertionError: fewer than `count` pages are free; the caller must free pages first.
        """
        assert 0 <= count <= self._num_free, f"{count} pages asked for, {self._num_free} free"
        self._num_free -= count
        self._least_free = min(self._least_free, self._num_free)
        pages = self._free[self._num_free : self._num_free + count].copy()
        self._marks[pages] = 0
        return pages

    def free(self, pages: Pages) -> None:
        """Return pages to the pool."""
        count = len(pages)
        if not count:
            return
        assert self._marks[pages].min() != FREE, "a page was freed that is free already"
        # Detects duplicates: a page that occurs twice in `pages` has only the mark of its last index.
        places = np.arange(count, dtype=np.int32)
        self._marks[pages] = places
        assert (self._marks[pages] == places).all(), "a page was freed twice at once"
        self._marks[pages] = FREE
        self._free[self._num_free : self._num_free + count] = pages
        self._num_free += count
