"""Formats large lists of replies in slices, so that other requests run in between.

The log probabilities of a few prompts are megabytes of JSON. If they were formatted at once, they would block
the event loop. Instead, at most about one slice is formatted in each iteration of the event loop. The items
of the lists may be of any type.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec

from llmfw.core.base.request import TokenEvent

ItemT = TypeVar("ItemT")

SLICE = 512
"""Work of one slice, in formatted numbers (each with some text): about a millisecond."""

_encode = msgspec.json.Encoder().encode


def num_values(event: TokenEvent) -> int:
    """Return the number of values to format for an event: its tokens, and their likely and named tokens."""
    scored = event.logprobs or ()
    width = 1 + len(scored[0].top_ids) + len(scored[0].given_ids) if scored else 1
    return width * len(event.token_ids)


class Slices:
    """Schedules the formatting of large lists: after each slice, another request has its turn."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # fair: the request that waits longest gets the next slice
        self._spent = 0

    async def of(self, items: Iterable[ItemT], weight: int = 1) -> AsyncIterator[list[ItemT]]:
        """Yield the items in slices, and let other requests run after each slice.

        Args:
            weight: amount of work for one item, in formatted numbers; 0: the work is already counted.
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
    """Builds a list of a reply as JSON, item by item.

    Args:
        slices: scheduler of the work, shared by all requests.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._items = bytearray()
        self.num_items = 0

    async def extend(self, items: Iterable[ItemT], form: Callable[[ItemT], object], weight: int = 1) -> None:
        """Append items.

        Args:
            form: function that converts an item to its form in the reply.
            weight: as in `Slices.of`.
        """
        async for some in self._slices.of(items, weight):
            if self._items:
                self._items += b","
            self._items += _encode([form(item) for item in some])[1:-1]
            self.num_items += len(some)

    def json(self) -> Any:
        """Return the list as a `msgspec.Raw`, which can be the value of a field in a reply."""
        return msgspec.Raw(b"[" + self._items + b"]")
