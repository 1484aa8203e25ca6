"""The interface of a batch store: batch jobs, their leases, and the results of their lines.

A store does not interpret the states of jobs or their order, with one exception: a job in one of the states
ENDED is finished. The server creates the ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from .tenant_limits import TenantLimits

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""States of a finished job."""


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job cannot run.

    Attributes:
        code: short, machine-readable code.
        line: line of the input file, from 1; None: the error concerns the whole file.
        param: field of the line that is at fault.
    """

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, summed over the lines of a job that have a reply."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class LineCrash(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a process was working on when the process died.

    Attributes:
        line: number of the line in the input file, from 1.
        points: strength of the suspicion that the line caused the crash; the store does not interpret it.
    """

    line: int
    points: int


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch job and its state. Times are seconds since the epoch, None until they are known.

    If you change the fields, check the stores: a newer llmfw must read records that an older one has written.

    Attributes:
        id: id that the server creates, and that sorts by time of creation; ASCII letters, digits, `-` and
            `_`.
        status: "validating", "in_progress", "finalizing", "cancelling", or one of ENDED.
        outcome: final status of a job that is "finalizing".
        output_file_id, error_file_id: ids of the result files. They are set before the files are written, so
            that a process that resumes the job replaces the same files. Clients see the ids once the job has
            ended.
        output_expires_after: seconds after which the result files expire; None: never.
        num_total: number of lines of the input file, 0 until they are counted.
        num_completed, num_failed: number of lines with a result. The store counts them (`BatchResults.add`).
        tenant: tenant that owns the job: the name of the API key that created it; "" if it was created
            without a key. The lines of the job run as requests of this tenant.
        limits: limits that an authenticator had given the tenant when the job was created; None: none, or those of an
            API key. After a restart they hold for the tenant until its next request.
        line_crashes: lines without a result that a process was working on when it died, in ascending order.
        adapters: for each adapter that a line names, the hash of its files at the time when the input was
            validated: name → hash. Lines run only with adapters that still have this hash.
        num_crashes: number of times that the server died while it worked on the job as a whole instead of
            single lines, since the job entered its present state.
    """

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    expires_at: int
    model: str | None = None
    outcome: str = "completed"
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    output_expires_after: int | None = None
    errors: tuple[BatchError, ...] = ()
    usage: BatchUsage | None = None
    num_total: int = 0
    num_completed: int = 0
    num_failed: int = 0
    metadata: Mapping[str, str] | None = None
    tenant: str = ""
    limits: TenantLimits | None = None
    line_crashes: tuple[LineCrash, ...] = ()
    num_crashes: int = 0
    adapters: Mapping[str, str] = {}


class LineResult(msgspec.Struct, frozen=True):
    """The result of one line of a job's input.

    Attributes:
        line: number of the line in the input file, from 1.
        failed: whether the result belongs in the error file.
        data: the line to write to the output or error file: JSON, without a line break.
    """

    line: int
    failed: bool
    data: bytes


class BatchResults(ABC):
    """The results of one job. The methods raise the same exceptions as the methods of `BatchStore`."""

    @abstractmethod
    async def add(self, results: Sequence[LineResult]) -> None:
        """Store all of these results. If this raises, no result is stored.

        Once this returns, the results survive a crash. A line keeps its first result; further results are
        dropped. The job's `num_completed` and `num_failed` grow by the number of results that are stored.
        """

    @abstractmethod
    async def done(self) -> Collection[int]:
        """Return the numbers of the lines that have a result."""

    @abstractmethod
    def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        """Yield the data of all failed lines, or of all successful ones, by ascending line number.

        Each item holds the data of several lines.
        """


class BatchStore(ABC):
    """Stores batch jobs. All methods are called on one event loop, which they must not block.

    Args:
        folder: folder to store the jobs in; None: the user chose no folder.
        options: an instance of the store's `Options`, passed by keyword, only to a store that has options.

    Raises:
        ConfigError: from the constructor: the folder cannot be used; the message gives the reason.
        KeyError: from every method with an id: no job has this id.
        StorageError: from every method: the operation is not possible now; nothing has changed.
        StorageFullError: from every method: the store has no space left; nothing has changed.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o batch_store.key=value`.

        A store with options overrides this.
        """

    @abstractmethod
    def __init__(self, folder: Path | None) -> None: ...

    @abstractmethod
    async def create(self, record: BatchRecord) -> None:
        """Store a new job. The job survives a crash once this returns."""

    @abstractmethod
    async def get(self, batch_id: str) -> BatchRecord:
        """Return a job."""

    @abstractmethod
    async def list(
        self,
        *,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        unfinished: bool = False,
    ) -> Sequence[BatchRecord]:
        """Return at most `limit` jobs, newest first, that is, by descending id.

        Args:
            tenants: owners of the jobs to return; None: all jobs.
            after: id of a job, which may no longer exist; only older jobs are returned.
            unfinished: whether to return only jobs that have not ENDED.
        """

    @abstractmethod
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        """Replace a job's record if the stored status is still `expected`; return whether it was replaced.

        `num_completed` and `num_failed` keep the store's values. Once a job has ENDED, the store deletes its
        results: by then, the result files hold them.
        """

    @abstractmethod
    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        """Acquire or renew the lease of a job; return False if another owner has it.

        A lease expires, so that another owner can take over the jobs of an owner that has crashed. A store
        that only one process can open may drop all leases when it is opened.

        Args:
            owner: owner of the lease, who alone may work on the job.
            seconds: duration of the lease from now on; 0 ends the lease.
        """

    @abstractmethod
    def results(self, batch_id: str) -> BatchResults:
        """Return the results of a job.

        If the job does not exist or has ENDED, either this method or the methods of its result raise
        KeyError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. No method may be called afterwards."""
