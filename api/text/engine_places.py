"""Limits how many choices of client requests with several choices are in the engine at once.

One request may ask for thousands of choices. If the engine got all of them at once, the next client's single
choice would wait behind them. This module only counts: it sends nothing to the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter


class PlaceHolder(ABC):
    """A client request with several choices, each of which takes a place while it is in the engine.

    Args:
        key: name of the API key; "" for all requests without one.

    Attributes:
        key: as above.
        num_places: number of places that the request holds. Only EnginePlaces changes it.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.num_places = 0

    @abstractmethod
    def wants_place(self) -> bool:
        """Return whether the request has a choice that it may send now."""

    @abstractmethod
    def send_one(self) -> None:
        """Send the next choice."""


class EnginePlaces:
    """Hands out the engine's places (sequences it runs at once) to client requests with several choices.

    At most `limit` places are held: three quarters of all places. There is one exception: a request without a
    place gets one at once, so that it waits in the engine's queue like a request with one choice. So at most
    `limit` places, and one per further request, are held. A free place goes to the API key with the fewest
    places, and among its requests to the request with the fewest places.

    Args:
        num_places: number of the engine's places.

    Attributes:
        limit: number of held places at which a request with a place gets no further place; at least 1.
        num_held: number of places that are held now.
    """

    def __init__(self, num_places: int) -> None:
        self.limit = max(1, num_places * 3 // 4)
        self.num_held = 0
        self._holders: dict[PlaceHolder, None] = {}
        self._of_key: Counter[str] = Counter()

    def join(self, holder: PlaceHolder) -> None:
        """Add a request, and give it the places that it may have now."""
        self._holders[holder] = None
        self.fill(holder)

    def leave(self, holder: PlaceHolder) -> None:
        """Remove a request, and hand out its places. A request that has left is ignored."""
        if holder in self._holders:
            del self._holders[holder]
            self._count(holder, -holder.num_places)
            self._hand_out()

    def release(self, holder: PlaceHolder) -> None:
        """Take back the place of a choice that has ended, and hand it out again."""
        self._count(holder, -1)
        self.fill(holder)

    def fill(self, holder: PlaceHolder) -> None:
        """Give a request a place if it has none, and hand out the free places to all requests."""
        if not holder.num_places and holder.wants_place():
            self._give(holder)
        self._hand_out()

    def _hand_out(self) -> None:
        while self.num_held < self.limit:
            wanting = [holder for holder in self._holders if holder.wants_place()]
            if not wanting:
                return
            self._give(min(wanting, key=lambda holder: (self._of_key[holder.key], holder.num_places)))

    def _give(self, holder: PlaceHolder) -> None:
        self._count(holder, 1)
        holder.send_one()

    def _count(self, holder: PlaceHolder, num: int) -> None:
        holder.num_places += num
        self.num_held += num
        self._of_key[holder.key] += num
        if not self._of_key[holder.key]:
            del self._of_key[holder.key]
