"""Reads the JSON of stored responses. If JSON cannot be read, the error names the damaged store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from llmfw.api.schemas.responses import Response
from llmfw.core.base.errors import StorageDamagedError
from llmfw.core.interfaces.response_store import ResponseRecord

from .items import Item

FoundT = TypeVar("FoundT")


class _StoredItem(msgspec.Struct):
    id: str


class _StoredOutput(msgspec.Struct):
    output: list[Item]


class _StoredHead(msgspec.Struct):
    id: str
    background: bool


_decode_items = msgspec.json.Decoder(list[Item]).decode
_decode_ids = msgspec.json.Decoder(list[_StoredItem]).decode
_decode_output = msgspec.json.Decoder(_StoredOutput).decode
_decode_head = msgspec.json.Decoder(_StoredHead).decode
_decode_response = msgspec.json.Decoder(Response).decode


class StoredJSON:
    """The JSON in the records of a response store. All methods raise StorageDamagedError if it is damaged.

    Args:
        store: name of the store, for errors.
    """

    def __init__(self, store: str) -> None:
        self._store = store

    def text(self, record: ResponseRecord) -> bytes:
        """Return the response as JSON, for a client."""
        self._head(record)
        return record.response

    def is_background(self, record: ResponseRecord) -> bool:
        """Return whether the response runs or ran in the background."""
        return self._head(record).background

    def response(self, record: ResponseRecord) -> Response:
        """Return the response."""
        return self._read(record, "response", record.response, _decode_response)

    def input(self, record: ResponseRecord) -> list[Item]:
        """Return the input items of the response's turn. Each has an id."""
        self._read(record, "input", record.input, _decode_ids)
        return self._read(record, "input", record.input, _decode_items)

    def items(self, record: ResponseRecord) -> list[Item]:
        """Return the items of the response's turn: its input, then its output."""
        output = self._read(record, "response", record.response, _decode_output).output
        return [*self.input(record), *output]

    def _head(self, record: ResponseRecord) -> _StoredHead:
        head = self._read(record, "response", record.response, _decode_head)
        if head.id != record.id:
            raise self._damaged(record, "response", f"it is the response {head.id!r:.80}")
        return head

    def _read(
        self, record: ResponseRecord, name: str, data: bytes, decode: Callable[[bytes], FoundT]
    ) -> FoundT:
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise self._damaged(record, name, str(error)) from error

    def _damaged(self, record: ResponseRecord, name: str, reason: str) -> StorageDamagedError:
        return StorageDamagedError(
            f"the response store {self._store!r} returned a damaged record of {record.id!r:.80}: its `{name}` cannot "
            f"be read: {reason}; delete this response, or restore a copy of the store"
        )
