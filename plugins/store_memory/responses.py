"""The response store `memory`: responses in dictionaries. Does not depend on their content."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

from llmfw.core import ResponseRecord, ResponseStore


class MemoryResponses(ResponseStore):
    """Keeps responses in memory, at most `max_bytes`: removes the oldest conversations. Ignores `folder`."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._records: dict[str, ResponseRecord] = {}
        self._roots: dict[str, str] = {}  # response → its conversation, named by the id of its first response
        self._conversations: dict[str, set[str]] = {}
        self._last: dict[str, float] = {}  # conversation → creation time of its newest response
        self._by_last: list[tuple[float, str]] = []  # heap of (last, conversation); some entries are outdated
        self._bytes = 0

    async def put(self, record: ResponseRecord) -> None:
        root = self._roots.get(record.id) or self._roots.get(record.previous or "") or record.id
        old = self._records.get(record.id)
        self._bytes += record.size - (old.size if old else 0)
        self._records[record.id] = record
        self._roots[record.id] = root
        self._conversations.setdefault(root, set()).add(record.id)
        if root not in self._last or self._last[root] < record.created_at:
            self._last[root] = record.created_at
            heapq.heappush(self._by_last, (record.created_at, root))
        while self._bytes > self._max_bytes:
            self._forget_oldest()

    async def get(self, response_id: str) -> ResponseRecord:
        return self._records[response_id]

    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        found = [self._records[response_id]]
        while (previous := found[-1].previous) is not None:
            found.append(self._records[previous])
        return found[::-1]

    async def delete(self, response_id: str) -> None:
        self._bytes -= self._records.pop(response_id).size
        root = self._roots.pop(response_id)
        self._conversations[root].discard(response_id)
        if not self._conversations[root]:
            self._forget(root)

    async def unfinished(self) -> Sequence[ResponseRecord]:
        return [record for record in self._records.values() if record.status in ("queued", "in_progress")]

    async def purge(self, before: float) -> int:
        removed = 0
        while self._by_last and self._by_last[0][0] < before:
            removed += self._forget_oldest()
        return removed

    async def close(self) -> None:
        self._records.clear()

    def _forget_oldest(self) -> int:
        """Pop the oldest entry of the heap, and remove its conversation unless the entry is outdated.

        Return the number of responses in the conversation; 0 for an outdated entry.
        """
        last, root = heapq.heappop(self._by_last)
        return self._forget(root) if self._last.get(root) == last else 0

    def _forget(self, root: str) -> int:
        """Remove a conversation; return the number of its responses."""
        ids = self._conversations.pop(root)
        del self._last[root]
        for response_id in ids:
            self._bytes -= self._records.pop(response_id).size
            del self._roots[response_id]
        return len(ids)
