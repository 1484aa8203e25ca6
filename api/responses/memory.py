"""Stores responses, and returns the items of earlier turns from stored responses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import msgspec

from llmfw.api.access.ownership import Ownership
from llmfw.api.schemas.responses import ItemList
from llmfw.core.base.errors import EngineError, NotFoundError, RequestError, StorageDamagedError
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.core.plugin.calls import as_the_server_starts

from .ids import response_of
from .items import REFERENCE, Item, kind_of
from .job import Job, failure
from .loads import TOO_LARGE, Load
from .stored import StoredJSON

logger = logging.getLogger(__name__)

RUNNING = ("queued", "in_progress")
SERVER_ENDED = "the server ended while this response was being made"
PURGE_EVERY_S = 60.0


class ResponseMemory:
    """Stored responses, and the conversations that they form.

    Args:
        name: name of the store, for errors.
        ttl_s: lifetime of a conversation in seconds, counted from its last response.
        ownership: rules that decide which responses the current request may see. Others are treated as
            missing.
    """

    def __init__(self, store: ResponseStore, name: str, ttl_s: float, ownership: Ownership) -> None:
        self._store = store
        self._stored = StoredJSON(name)
        self._ownership = ownership
        self._ttl_s = ttl_s
        self._purging: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Mark an earlier server's unfinished responses as failed, and start to remove old conversations.

        Logs damaged responses and leaves them as they are.

        Raises:
            ComponentError: the store failed.
        """
        with as_the_server_starts():
            for record in await self._store.unfinished():
                try:
                    response = self._stored.response(record)
                except StorageDamagedError as error:
                    logger.error("A response of an earlier server cannot be marked as failed: %s", error)
                    continue
                response.status = "failed"
                response.error = failure(EngineError(SERVER_ENDED))
                changed = {"status": "failed", "response": msgspec.json.encode(response)}
                await self._store.put(msgspec.structs.replace(record, **changed))
        self._purging = asyncio.create_task(self._purge())

    async def close(self) -> None:
        """Stop the task that removes old conversations."""
        if self._purging is not None:
            self._purging.cancel()
            await asyncio.gather(self._purging, return_exceptions=True)

    async def keep(self, job: Job) -> None:
        """Store a job's response in its current state, unless the client set `store` to false."""
        response = job.response
        if response.store:
            record = ResponseRecord(
                id=response.id,
                created_at=job.created_at,
                status=response.status,
                previous=response.previous_response_id,
                response=msgspec.json.encode(response),
                input=msgspec.json.encode(job.input),
                tenant=job.tenant,
            )
            await self._store.put(record)

    async def find(self, response_id: str) -> ResponseRecord:
        """Return a response; raise NotFoundError if it is missing or the current request may not see it."""
        try:
            return await self._visible(response_id)
        except KeyError:
            raise NotFoundError(f"there is no response {response_id[:100]!r}", param="response_id") from None

    async def text(self, response_id: str) -> bytes:
        """Return a response as JSON.

        Raises:
            NotFoundError: as in `find`.
            StorageDamagedError: the stored response cannot be read.
        """
        return self._stored.text(await self.find(response_id))

    async def is_background(self, response_id: str) -> bool:
        """Return whether a response runs or ran in the background; raise as `text` does."""
        return self._stored.is_background(await self.find(response_id))

    async def delete(self, response_id: str) -> None:
        """Remove a response that `find` has returned; raise NotFoundError if it no longer exists."""
        try:
            await self._store.delete(response_id)
        except KeyError:
            raise NotFoundError(f"there is no response {response_id[:100]!r}", param="response_id") from None

    async def conversation(self, previous_id: str | None, load: Load) -> list[Item]:
        """Return the items of all turns up to and including a response; [] if the id is None.

        Raises:
            RequestError: the response or an earlier one of its conversation does not exist, the response has
                not ended, or the turns are too large.
        """
        if previous_id is None:
            return []
        try:
            await self._visible(
                previous_id
            )  # first, so that an error never names a response of another tenant
            records = await self._store.conversation(previous_id)
        except KeyError as error:
            raise _not_found(previous_id, str(error.args[0])) from error
        if records[-1].status in RUNNING:
            raise RequestError(
                f"previous_response_id is {previous_id!r}, which is {records[-1].status}; "
                "it can be continued when it has ended",
                param="previous_response_id",
            )
        num_bytes = sum(record.size for record in records)
        try:
            load.count(num_bytes, "previous_response_id")
        except RequestError:
            del records  # the error's traceback would keep them until a garbage collection
            raise
        items: list[Item] = []
        for record in records:
            items += self._stored.items(record)
            await asyncio.sleep(0)  # decoding a large turn takes a while
        return items

    async def resolved(self, given: str | Sequence[Item], load: Load) -> str | Sequence[Item]:
        """Return an input with its references replaced with the stored items.

        Raises:
            RequestError: a referenced item is not stored here, or the responses to read are too large in
            total.
        """
        if isinstance(given, str):
            return given
        stored: dict[str, dict[str, Item]] = {}  # response id → its items by id; each is decoded once
        return [
            await self._referred(item.get("id"), i, stored, load) if kind_of(item) == REFERENCE else item
            for i, item in enumerate(given)
        ]

    async def page(
        self, response_id: str, load: Load, *, after: str | None, limit: int, newest_first: bool
    ) -> ItemList:
        """Return one page of a response's input items, including the items of earlier turns.

        Args:
            after: id of the last item of the previous page; None: the first page.
            limit: maximum number of items of the page.

        Raises:
            NotFoundError: the response or one before it in the conversation does not exist.
            RequestError: the item `after` does not exist, or the turns are too large.
        """
        record = await self.find(response_id)
        load.count(record.size, "response_id")
        try:
            items = [*await self.conversation(record.previous, load), *self._stored.input(record)]
        except RequestError as error:
            if error.code == TOO_LARGE:
                raise
            raise NotFoundError(str(error), param="response_id", code=error.code) from error
        if newest_first:
            items.reverse()
        ids = [item["id"] for item in items]
        if after is not None and after not in ids:
            raise RequestError(
                f"after is {after[:100]!r}; it must be the id of an item of this response", param="after"
            )
        start = ids.index(after) + 1 if after is not None else 0
        data = items[start : start + limit]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return ItemList(data=data, first_id=first, last_id=last, has_more=start + limit < len(items))

    async def _visible(self, response_id: str) -> ResponseRecord:
        """Return a response; raise KeyError(id) if it is missing or the current request may not see it."""
        record = await self._store.get(response_id)
        if not self._ownership.may_see(record.tenant):
            raise KeyError(response_id)
        return record

    async def _referred(
        self, item_id: object, i: int, stored: dict[str, dict[str, Item]], load: Load
    ) -> Item:
        response_id = response_of(item_id) or "" if isinstance(item_id, str) else ""
        if response_id not in stored:
            stored[response_id] = await self._items_of(response_id, f"input[{i}].id", load)
        found = stored[response_id].get(str(item_id))
        if found is not None:
            return found
        raise RequestError(
            f"input[{i}].id is {item_id!r:.100}; no item of this id is stored here", param=f"input[{i}].id"
        )

    async def _items_of(self, response_id: str, param: str, load: Load) -> dict[str, Item]:
        """Return a response's items by id; {} if it is missing or the current request may not see it."""
        try:
            record = await self._visible(response_id)
        except KeyError:
            return {}
        load.count(record.size, param)
        await asyncio.sleep(0)  # a store in memory never waits, and decoding a large record takes a while
        return {item["id"]: item for item in self._stored.items(record)}

    async def _purge(self) -> None:
        while True:
            try:
                removed = await self._store.purge(time.time() - self._ttl_s)
            except Exception:
                logger.exception("Old responses could not be removed")
            else:
                if removed:
                    logger.info("Removed %d responses whose time was over", removed)
            await asyncio.sleep(PURGE_EVERY_S)


def refers(given: str | Sequence[Item]) -> bool:
    """Return whether an input refers to stored items."""
    return not isinstance(given, str) and any(kind_of(item) == REFERENCE for item in given)


def _not_found(previous_id: str, missing: str) -> RequestError:
    message = f"previous_response_id is {previous_id[:100]!r}; "
    if missing == previous_id:
        message += "there is no response of this id"
    else:
        message += f"it continues {missing!r}, which is not there any more"
    return RequestError(message, param="previous_response_id", code="previous_response_not_found")
