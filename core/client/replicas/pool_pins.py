"""The pinned prefixes of several engines. All engines hold each pin, each under its own id."""

from __future__ import annotations

from collections.abc import Mapping

from llmfw.core.base.control import CacheView, PinInfo
from llmfw.core.base.errors import NotFoundError


class PoolPins:
    """Maps the pool's id of a pin to its ids in the engines. The pool uses the id in the first engine."""

    def __init__(self) -> None:
        self._ids: dict[str, dict[int, str]] = {}

    def add(self, pins: Mapping[int, PinInfo]) -> PinInfo:
        """Remember a pin.

        Args:
            pins: number of the engine → the pin in this engine; at least one.

        Returns:
            The pin of the pool.
        """
        ids = {index: pin.id for index, pin in pins.items()}
        id = next(iter(ids.values()))
        self._ids[id] = ids
        return _merged(id, list(pins.values()))

    def take(self, id: str) -> dict[int, str]:
        """Forget a pin; return the ids of the pin, by engine number.

        Raises:
            NotFoundError: there is no such pin.
        """
        if id not in self._ids:
            raise NotFoundError(f"no prefix is pinned as {id!r}; the pin may have expired", param="id")
        return self._ids.pop(id)

    def of(self, views: Mapping[int, CacheView], *, are_all: bool) -> list[PinInfo]:
        """Return the pins that the engines still hold.

        Args:
            are_all: whether `views` includes all engines. If so, forgets the pins that no engine holds,
                because they have expired or their engines have ended.
        """
        held = {(index, pin.id): pin for index, view in views.items() for pin in view.pins}
        found = []
        for id, ids in list(self._ids.items()):
            pins = [held[place] for place in ids.items() if place in held]
            if pins:
                found.append(_merged(id, pins))
            elif are_all:
                del self._ids[id]
        return found


def _merged(id: str, pins: list[PinInfo]) -> PinInfo:
    """Return one pin for all engines, with the smallest number of cached tokens."""
    return PinInfo(
        id,
        num_tokens=max(pin.num_tokens for pin in pins),
        num_cached=min(pin.num_cached for pin in pins),
        expires_in_s=max(pin.expires_in_s for pin in pins),
    )
