"""The engines of a pool, by number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import EngineLostError

from ..prefix_index import PrefixIndex
from .replica import Replica


class ReplicaSet:
    """Engines by number. Engines can be added and removed, so numbers may be missing.

    Args:
        replicas: the initial engines.

    Attributes:
        prefixes: the prefixes that the engines have cached.
    """

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self.prefixes = PrefixIndex()
        self._by_index: dict[int, Replica] = {}
        for replica in replicas:
            self.add(replica)

    def __iter__(self) -> Iterator[Replica]:
        """Iterate over a copy of the current engines, by ascending number."""
        return iter([self._by_index[index] for index in sorted(self._by_index)])

    def __len__(self) -> int:
        """Return the number of engines."""
        return len(self._by_index)

    def __getitem__(self, index: int) -> Replica:
        """Return the engine with this number; raises KeyError if there is none."""
        return self._by_index[index]

    @property
    def infos(self) -> list[EngineInfo]:
        """Descriptions of the engines that have not failed for good; of all engines if all have.

        A failed engine may differ from the others, whose weights were replaced since.
        """
        clients = [replica.client for replica in self]
        return [each.info for each in clients if each.failure is None] or [each.info for each in clients]

    def find(self, index: int) -> Replica | None:
        """Return the engine with this number; None if there is none."""
        return self._by_index.get(index)

    async def all_lost(self) -> EngineLostError:
        """Wait until all current engines are lost; return the reason of the first engine."""
        return (await asyncio.gather(*(replica.client.wait_lost() for replica in self)))[0]

    def add(self, replica: Replica) -> None:
        """Add an engine. No other engine may have its number."""
        assert replica.index not in self._by_index, f"engine {replica.index} is there already"
        self._by_index[replica.index] = replica
        replica.attach(self.prefixes)

    def remove(self, replica: Replica) -> None:
        """Remove an engine."""
        del self._by_index[replica.index]
        replica.mirror.withdraw()
