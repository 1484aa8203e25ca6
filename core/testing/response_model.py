"""Reference model of a response store, and random operations for tests that compare a store with the
model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from llmfw.core.interfaces.response_store import ResponseRecord

from .stores import any_of

MAX_BYTES = 100
RUNNING = ("queued", "in_progress")


def object_of(size: int) -> bytes:
    """Return a JSON object of `size` bytes (at least 8). It is valid JSON, because a store may parse it."""
    return b'{"a":"%s"}' % (b"x" * (size - 8))


def response(id: str = "resp_1", previous: str | None = None, **fields: Any) -> ResponseRecord:
    """Return a response's record with default values for all fields that are not given.

    With only default values, its size is 10 bytes.
    """
    given: dict[str, Any] = {
        "created_at": 1.0,
        "status": "completed",
        "response": object_of(8),
        "input": b"[]",
    } | fields
    return ResponseRecord(id=id, previous=previous, **given)


class ResponseModel:
    """Reference model of a response store: a dictionary.

    Responses are numbered in the order in which they are created, so ids are never reused, as in the API.
    """

    def __init__(self) -> None:
        self._all: list[ResponseRecord] = []  # all responses ever created, including deleted ones
        self.records: dict[str, ResponseRecord] = {}
        self.roots: dict[str, str] = {}
        self.last: dict[str, float] = {}

    def call_of(self, operation: str, given: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Convert one of `OPERATIONS` to the name and the arguments of a store's method."""
        if operation == "new":
            return "put", (self._next(**given),)
        if operation == "unfinished":
            return "unfinished", ()
        if operation == "purge":
            return "purge", (float(len(self._all) - given["kept"]),)
        known = self._all[given["number"] % len(self._all)] if self._all else response("resp_none")
        if operation == "replace" and known.id in self.records:
            # Never grow a response: the interface does not define whether a grown response may be evicted.
            size = min(given["size"], len(known.response))
            changed = {"status": given["status"], "response": object_of(size)}
            return "put", (msgspec.structs.replace(known, **changed),)
        return "get" if operation == "replace" else operation, (known.id,)

    def _next(self, previous: int, size: int, status: str) -> ResponseRecord:
        """Create a response that is one second newer than the last.

        Args:
            previous: number n of the response to continue, counted from the last one; 0: start a
                conversation.
        """
        number = len(self._all)
        before = self._all[-previous].id if 0 < previous <= number else None
        made = response(
            f"resp_{number:04}", before, created_at=float(number), status=status, response=object_of(size)
        )
        self._all.append(made)
        return made

    async def put(self, record: ResponseRecord) -> None:
        root = self.roots.get(record.id) or self.roots.get(record.previous or "", record.id)
        self.records[record.id], self.roots[record.id] = record, root
        self.last[root] = max(self.last.get(root, 0.0), record.created_at)
        while sum(old.size for old in self.records.values()) > MAX_BYTES:
            self._forget(min(self.last, key=lambda root: self.last[root]))

    async def get(self, id: str) -> ResponseRecord:
        return self.records[id]

    async def conversation(self, id: str) -> Sequence[ResponseRecord]:
        found = [self.records[id]]
        while (previous := found[0].previous) is not None:
            found.insert(0, self.records[previous])
        return found

    async def delete(self, id: str) -> None:
        del self.records[id]
        root = self.roots.pop(id)
        if root not in self.roots.values():
            del self.last[root]

    async def unfinished(self) -> Sequence[ResponseRecord]:
        return [record for record in self.records.values() if record.status in RUNNING]

    async def purge(self, before: float) -> int:
        return sum([self._forget(root) for root, last in [*self.last.items()] if last < before])

    def _forget(self, root: str) -> int:
        gone = [id for id, of in self.roots.items() if of == root]
        for id in gone:
            del self.records[id], self.roots[id]
        del self.last[root]
        return len(gone)


_NUMBER = st.integers(0, 30)
_STATUS = st.sampled_from(("queued", "in_progress", "completed", "failed"))

OPERATIONS = any_of(
    {
        "new": {
            "previous": st.integers(0, 4),
            "size": st.integers(8, 60),
            "status": _STATUS,
        },
        "replace": {"number": _NUMBER, "size": st.integers(8, 60), "status": _STATUS},
        "get": {"number": _NUMBER},
        "conversation": {"number": _NUMBER},
        "delete": {"number": _NUMBER},
        "unfinished": {},
        "purge": {"kept": st.integers(0, 12)},
        "reopen": {},
    }
)
