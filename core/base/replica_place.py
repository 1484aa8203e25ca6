"""The place of an engine among the engines of one server."""

from __future__ import annotations

import msgspec


class ReplicaPlace(msgspec.Struct, frozen=True):
    """Which of a server's engines this one is, and how many there are.

    Attributes:
        index: number of the engine, from 0.
        count: number of engines.
    """

    index: int = 0
    count: int = 1

    def share(self, total: int) -> int:
        """Return this engine's share of `total` equal things, such as CPU cores, at least 1.

        The shares of all engines add up to `total` if there are at least as many things as engines.
        """
        return max(1, (self.index + 1) * total // self.count - self.index * total // self.count)
