"""Creates, shows, lists and cancels batch jobs for clients. The runner runs them.

Uses OpenAI's schemas, but does not depend on HTTP: the command that runs a file without a server uses it,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from llmfw.api.access.ownership import Ownership
from llmfw.api.access.scopes import check_path_scope
from llmfw.api.http.cursor_page import PageQuery, page_of
from llmfw.api.responses.service import ResponseService
from llmfw.api.schemas.batches import Batch, BatchList, CreateBatchRequest
from llmfw.api.server.limits import BodyLimits
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import ConflictError, NotFoundError, RequestError
from llmfw.core.base.ids import sortable_id
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.batch_store import BatchRecord, BatchStore
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.interfaces.tenant_limits import TenantLimits

from .completion_window import window_seconds
from .counts import BatchCounts
from .endpoints import Answering, Endpoints
from .job import log_change
from .job_context import JobContext, LimitedTenants, UnlimitedTenants
from .runner import BatchRunner, unfinished
from .states import cancelling, may_be_cancelled
from .view import view
from .windows import Windows
from .work_marks import WorkMarks

PURPOSE = "batch"
MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512  # of metadata; lengths in characters
VALIDATING, RUNNING = 2, 32  # most jobs in each state at once
RETRY_S = 0.2
LISTED_ERRORS = 20  # errors shown of a job in a list; a page with all errors could take a hundred megabytes


class BatchService:
    """Creates, shows, lists and cancels batch jobs.

    Args:
        files: store of the input and output files.
        runner: runner of the jobs.
        ownership: rules that decide which jobs and files a request may see. Others do not exist for the
            request.
        deleting: lock held while an input file is looked up and its job is created. Code that deletes files
            holds the same lock.
        counts: counts the jobs and lines that have ended in this process.
        tenants: limits of the tenants, which new jobs keep for a later server; None: there are none.
    """

    def __init__(
        self,
        files: FileStore,
        batches: BatchStore,
        endpoints: Endpoints,
        runner: BatchRunner,
        ownership: Ownership,
        deleting: asyncio.Lock | None = None,
        counts: BatchCounts | None = None,
        tenants: LimitedTenants | None = None,
    ) -> None:
        self.counts = counts or BatchCounts()
        self._files = files
        self._batches = batches
        self._endpoints = endpoints
        self._runner = runner
        self._ownership = ownership
        self._tenants = tenants or UnlimitedTenants()
        self._deleting = deleting or asyncio.Lock()

    async def start(self) -> None:
        """Continue the unfinished jobs of an earlier server."""
        await self._runner.start()

    async def close(self) -> None:
        """Stop the jobs; the next server continues them."""
        await self._runner.close()

    async def create(self, body: CreateBatchRequest) -> Batch:
        """Create a job and return it. Its validation starts in the background.

        Raises:
            RequestError: a field is wrong; the error names the field.
            MissingScopeError: the caller may not request this endpoint.
            NotFoundError: the input file does not exist.
            StorageError: the job cannot be stored now.
        """
        self._endpoints.check(body.endpoint)
        check_path_scope(body.endpoint)
        seconds = window_seconds(body.completion_window)
        _check_metadata(body.metadata or {})
        tenant = self._ownership.tenant
        record = _record(body, seconds, tenant, self._tenants.noted(tenant))
        async with self._deleting:
            await self._check_input(body.input_file_id)
            await self._batches.create(record)
        log_change("new", record)
        self._runner.offer(record.id)
        return view(record)

    async def get(self, batch_id: str) -> Batch:
        """Return the current state of a job; raise NotFoundError if it does not exist."""
        return view(await self._find(batch_id))

    async def list(self, query: PageQuery) -> BatchList:
        """Return a page of jobs, newest first."""
        if not query.newest_first:
            raise RequestError("order is 'asc'; batches are listed newest first only", param="order")
        tenants = self._ownership.visible()
        found = await self._batches.list(tenants=tenants, after=query.after, limit=query.fetch)
        return BatchList(**page_of([view(record, LISTED_ERRORS) for record in found], query))

    async def unfinished(self) -> Sequence[BatchRecord]:
        """Return the records of all tenants' jobs that have not ended.

        Raises:
            StorageError: the store cannot be read now.
        """
        return await unfinished(self._batches)

    async def cancel(self, batch_id: str) -> Batch:
        """Cancel a job and return it in state "cancelling". The job keeps the results so far.

        Raises:
            NotFoundError: the job does not exist.
            ConflictError: the job has ended.
        """
        while True:
            record = await self._find(batch_id)
            if record.status == "cancelling":
                return view(record)
            if not may_be_cancelled(record.status):
                raise ConflictError(f"Cannot cancel a batch with status '{record.status}'.", param="batch_id")
            new = cancelling(record, int(time.time()))
            if await self._batches.update(new, expected=record.status):
                log_change(record.status, new)
                self._runner.halt(batch_id)
                return view(new)

    async def _find(self, batch_id: str) -> BatchRecord:
        with contextlib.suppress(KeyError):
            record = await self._batches.get(batch_id)
            if self._ownership.may_see(record.tenant):
                return record
        raise NotFoundError(
            f"there is no batch {batch_id[:100]!r}; GET /v1/batches lists those of this key", param="batch_id"
        )

    async def _check_input(self, file_id: str) -> None:
        try:
            file = await self._files.get(file_id)
        except KeyError:
            file = None
        if file is None or file.space != "files" or not self._ownership.may_see(file.tenant):
            raise NotFoundError(
                f"input_file_id is {file_id[:100]!r}; there is no such file", param="input_file_id"
            )
        if file.purpose != PURPOSE:
            raise RequestError(
                f"input_file_id is {file_id!r}, a file of purpose {file.purpose!r}; upload it with purpose "
                f"{PURPOSE!r}",
                param="input_file_id",
            )


def open_batches(
    clients: ByModel[EngineClient],
    answering: ByModel[Answering],
    responses: ResponseService,
    files: FileStore,
    batches: BatchStore,
    *,
    strict: bool,
    limits: BodyLimits,
    ownership: Ownership,
    deleting: asyncio.Lock | None = None,
    folder: Path | None = None,
    tenants: LimitedTenants | None = None,
) -> BatchService:
    """Return a batch service with its own runner. The caller must start and close it.

    Args:
        clients: clients of the models' engines.
        answering: services of each model, whose engine client is a `DeferringClient` of the model's client.
        responses: service of responses that uses the chats of `answering`.
        strict: whether to reject request fields that would be ignored.
        limits: limits on the size and structure of each line.
        ownership, deleting: as in `BatchService`.
        folder: folder of the work marks, which reveal lines that crash the server; None: no marks are stored.
        tenants: limits of the tenants; None: there are none.
    """
    endpoints = Endpoints(answering, responses, strict=strict)
    tenants = tenants or UnlimitedTenants()
    context = JobContext(
        files=files,
        batches=batches,
        endpoints=endpoints,
        windows=Windows(clients),
        validating=asyncio.Semaphore(VALIDATING),
        running=asyncio.Semaphore(RUNNING),
        marks=WorkMarks(folder),
        tenants=tenants,
        limits=limits,
        retry_s=RETRY_S,
    )
    runner = BatchRunner(context)
    return BatchService(files, batches, endpoints, runner, ownership, deleting, context.counts, tenants)


def _record(body: CreateBatchRequest, seconds: int, tenant: str, limits: TenantLimits | None) -> BatchRecord:
    """Return the record of a new job. Its deadline is `seconds` from now."""
    now, expires_after = int(time.time()), body.output_expires_after
    return BatchRecord(
        id=sortable_id("batch_"),
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        status="validating",
        created_at=now,
        expires_at=now + seconds,
        output_expires_after=None if expires_after is None else expires_after.seconds,
        metadata=body.metadata,
        tenant=tenant,
        limits=limits,
    )


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_PAIRS:
        raise RequestError(
            f"metadata has {len(metadata)} pairs; at most {MAX_PAIRS} are allowed", param="metadata"
        )
    for key, value in metadata.items():
        if len(key) > MAX_KEY or len(value) > MAX_VALUE:
            raise RequestError(
                f"metadata.{key[:MAX_KEY]} has a key of {len(key)} and a value of {len(value)} characters; "
                f"at most {MAX_KEY} and {MAX_VALUE} are allowed",
                param=f"metadata.{key[:MAX_KEY]}",
            )
