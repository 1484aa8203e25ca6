"""Checks that a store returns the records that were requested.

A record with another id, space or tenant could show one client's data to another client.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import msgspec

from llmfw.core.interfaces.batch_store import ENDED, BatchRecord, BatchStore
from llmfw.core.interfaces.file_store import FileRecord, FileStore
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore

from .returned import Check, WrongReturnError

Compare = Callable[[Mapping[str, Any], Any], None]
"""Raises WrongReturnError if a method's result does not fit the method's arguments, which are given by name.
"""


def agreement_of(declared: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Check | None:
    """Return a function that checks what one call of a store's method returns.

    Args:
        declared: the method in the interface.
        args: positional arguments of the call, including `self`.
        kwargs: keyword arguments of the call.

    Returns:
        None if the method returns no record.
    """
    compare = _COMPARE.get(declared)
    if compare is None:
        return None
    bound = inspect.signature(declared).bind(*args, **kwargs)
    bound.apply_defaults()
    return functools.partial(compare, bound.arguments)


def _same_id(asked: Mapping[str, Any], found: FileRecord | BatchRecord | ResponseRecord) -> None:
    wanted = next(asked[name] for name in ("file_id", "batch_id", "response_id") if name in asked)
    if found.id != wanted:
        raise WrongReturnError(f"returned the record of {found.id!r:.80} in place of {wanted!r:.80}")


def _listed_files(asked: Mapping[str, Any], found: Sequence[FileRecord]) -> None:
    _listed(asked, found)
    for record in found:
        if record.space != asked["space"]:
            raise WrongReturnError(
                f"returned {record.id!r:.80} of the space {record.space!r:.80} in place of {asked['space']!r:.80}"
            )
        if asked["purpose"] not in (None, record.purpose):
            raise WrongReturnError(
                f"returned {record.id!r:.80} of the purpose {record.purpose!r:.80} in place of {asked['purpose']!r:.80}"
            )


def _listed_batches(asked: Mapping[str, Any], found: Sequence[BatchRecord]) -> None:
    _listed(asked, found)
    for record in found:
        if asked["unfinished"] and record.status in ENDED:
            raise WrongReturnError(f"returned {record.id!r:.80}, which is {record.status}, as unfinished")


def _listed(asked: Mapping[str, Any], found: Sequence[FileRecord] | Sequence[BatchRecord]) -> None:
    if len(found) > asked["limit"]:
        raise WrongReturnError(f"returned {len(found)} records, and the limit is {asked['limit']}")
    if asked["tenants"] is None:
        return
    for record in found:
        if record.tenant not in asked["tenants"]:
            raise WrongReturnError(f"returned {record.id!r:.80} of a tenant that was not asked for")


def _expired(asked: Mapping[str, Any], found: Sequence[FileRecord]) -> None:
    for record in found:
        if record.expires_at is None or record.expires_at > asked["now"]:
            raise WrongReturnError(
                f"returned {record.id!r:.80} as expired, which expires at {record.expires_at}"
            )


def _unfinished(asked: Mapping[str, Any], found: Sequence[ResponseRecord]) -> None:
    for record in found:
        if record.status not in ("queued", "in_progress"):
            raise WrongReturnError(
                f"returned {record.id!r:.80}, which is {record.status!r:.80}, as unfinished"
            )


def _conversation(asked: Mapping[str, Any], found: Sequence[ResponseRecord]) -> None:
    previous: str | None = None
    for record in found:
        if record.previous != previous:
            raise WrongReturnError(
                f"returned {record.id!r:.80}, which continues {record.previous!r:.80}, after {previous!r:.80}"
            )
        previous = record.id
    if previous != asked["response_id"]:
        raise WrongReturnError(
            f"returned a conversation that ends with {previous!r:.80} in place of {asked['response_id']!r:.80}"
        )


def check_lines(found: Sequence[bytes]) -> None:
    """Raise WrongReturnError if an item of `BatchResults.lines` is not one line of JSON.

    Such an item would change the number of lines in the file that a client reads.
    """
    for line in found:
        if b"\n" in line:
            raise WrongReturnError(f"returned several lines in place of one: {line!r:.80}")
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except ValueError as error:
            raise WrongReturnError(f"returned a line that is not JSON ({error}): {line!r:.80}") from error


_COMPARE: Mapping[Any, Compare] = {
    FileStore.get: _same_id,
    FileStore.list: _listed_files,
    FileStore.expired: _expired,
    BatchStore.get: _same_id,
    BatchStore.list: _listed_batches,
    ResponseStore.get: _same_id,
    ResponseStore.conversation: _conversation,
    ResponseStore.unfinished: _unfinished,
}


class PutArguments:
    """The arguments of one `FileStore.put`, which record how the store uses them.

    Args:
        chunks, describe: the caller's arguments.
        fail: function that logs a failure of the store, and returns the error to raise.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        describe: Callable[[int], FileRecord],
        fail: Callable[[Exception], Exception],
    ) -> None:
        self._chunks = chunks
        self._describe = describe
        self._fail = fail
        self._size = 0
        self._is_read = False
        self._record: FileRecord | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the caller's chunks."""
        async for chunk in self._chunks:
            self._size += len(chunk)
            yield chunk
        self._is_read = True

    def describe(self, size: int) -> FileRecord:
        """Return the caller's record of the file.

        Raises:
            ComponentFailedError: the store has not read all chunks, or has counted their bytes wrongly.
        """
        if not self._is_read:
            raise self._fail(WrongReturnError("called describe before it had read all chunks"))
        if size != self._size:
            raise self._fail(
                WrongReturnError(
                    f"called describe with the size {size!r:.80}; the chunks have {self._size} bytes"
                )
            )
        self._record = self._describe(size)
        return self._record

    def check(self, found: FileRecord) -> None:
        """Raise WrongReturnError if the store returned another record than `describe`."""
        if self._record is None:
            raise WrongReturnError("returned without a call of describe")
        if found != self._record:
            raise WrongReturnError(
                f"returned the record {found.id!r:.80}; describe returned {self._record.id!r:.80}"
            )
