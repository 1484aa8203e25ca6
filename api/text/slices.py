"""Formats large lists of a reply in slices, so that other requests go on in between.

The log probabilities of a few prompts are megabytes of JSON, and the event loop runs nothing else while it makes them. Only one
slice of all requests is made in a round of the event loop. Knows nothing of what the lists hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec

ItemT = TypeVar("ItemT")

SLICE = 512
"""Numbers in one slice, with some text each: about a millisecond of work."""

_encode = msgspec.json.Encoder().encode


class Slices:
    """Takes the large lists of all requests in turns, a slice at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # fair: the slice of whoever waits longest comes next
        self._spent = 0

    async def of(self, items: Iterable[ItemT], weight: int = 1) -> AsyncIterator[list[ItemT]]:
        """Yield items in lists, and let others run after each slice.

        Args:
            weight: numbers that belong to one item; 0: the items are part of a slice already.
        """
        size, rest = max(1, SLICE // max(1, weight)), iter(items)
        while some := list(islice(rest, size)):
            if self._spent >= SLICE:
                async with self._turn:
                    await asyncio.sleep(0)
                    self._spent = 0
            self._spent += weight * len(some)
            yield some


class ListWriter:
    """A list of a reply as JSON, which grows.

    Args:
        slices: takes turns with those of other requests.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._items = bytearray()
        self.num_items = 0

    async def extend(self, items: Iterable[ItemT], form: Callable[[ItemT], object], weight: int = 1) -> None:
        """Append items.

        Args:
            form: returns what stands for an item in the reply.
            weight: as in `Slices.of`.
        """
        async for some in self._slices.of(items, weight):
            if self._items:
                self._items += b","
            self._items += _encode([form(item) for item in some])[1:-1]
            self.num_items += len(some)

    def json(self) -> Any:
        """Return the list for a field of a reply: a `msgspec.Raw`, which is encoded as it is."""
        return msgspec.Raw(b"[" + self._items + b"]")
