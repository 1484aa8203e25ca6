"""The pinned prefixes of several engines: each pin is held by all engines, under an id of its own in each."""

from __future__ import annotations

from collections.abc import Mapping

from llmfw.core.base.control import CacheView, PinInfo
from llmfw.core.base.errors import NotFoundError


class PoolPins:
    """Knows the ids of a pin in the engines. The pool's own id of a pin is that in the first engine that holds it."""

    def __init__(self) -> None:
        self._ids: dict[str, dict[int, str]] = {}

    def add(self, pins: Mapping[int, PinInfo]) -> PinInfo:
        """Remember a pin.

        Args:
            pins: number of the engine → the pin there, at least one.

        Returns:
            The pin of the pool.
        """
        ids = {index: pin.id for index, pin in pins.items()}
        id = next(iter(ids.values()))
        self._ids[id] = ids
        return _merged(id, list(pins.values()))

    def take(self, id: str) -> dict[int, str]:
        """Forget a pin; return its id in each engine.

        Raises:
            NotFoundError: there is no such pin.
        """
        if id not in self._ids:
            raise NotFoundError(f"no prefix is pinned as {id!r}; the pin may have expired", param="id")
        return self._ids.pop(id)

    def of(self, views: Mapping[int, CacheView], *, are_all: bool) -> list[PinInfo]:
        """Return the pins that the engines still hold.

        Args:
            are_all: whether `views` has all engines. If so, forgets the pins that no engine holds: they have expired, or
                their engines have ended.
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
    """Return a pin that is as far in the cache as in the engine that has least of it."""
    return PinInfo(
        id,
        num_tokens=max(pin.num_tokens for pin in pins),
        num_cached=min(pin.num_cached for pin in pins),
        expires_in_s=max(pin.expires_in_s for pin in pins),
    )
