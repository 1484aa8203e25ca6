"""The interface of a batch store: batch jobs, who works on them, and the results of their lines.

A store keeps what it is given: what states there are, and what follows on which, is for its user to know. Except:
in the states ENDED nothing is left to do. Ids are made by the server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states of a job that has come to its end."""


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job cannot run.

    Attributes:
        code: short, machine-readable.
        line: of the input file, from 1; None: it is the file's.
        param: the field of the line that is at fault.
    """

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all lines of a job that have a reply."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class LineCrash(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a process was busy with when it died.

    Attributes:
        line: its number in the input file, from 1.
        points: how strongly it is suspected; what they mean is for the user of the store to know.
    """

    line: int
    points: int


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch job and its state. Times are seconds since the epoch, None until they come.

    A change of its fields needs a look at the stores: what an older llmfw has written is read by a newer one.

    Attributes:
        id: made by the server, and sorts by when it was made; ASCII letters, digits, `-` and `_`.
        status: "validating", "in_progress", "finalizing", "cancelling", or one of ENDED.
        outcome: what a job that is "finalizing" will end as.
        output_file_id, error_file_id: set before the files are written, so that who resumes writes the same ones.
            A client is told of them once the job has ended.
        output_expires_after: seconds after which its files expire; None: never.
        num_total: lines of the input file, 0 until they are counted.
        num_completed, num_failed: lines with a result. They are counted by the store (`BatchResults.add`).
        tenant: that it belongs to, and for which its lines are counted: the name of the API key that made it; "": it
            was made without one.
        line_crashes: lines without a result that a process was busy with when it died, by ascending number.
        num_crashes: how often the server died while it worked on the job as a whole in its present state.
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
    line_crashes: tuple[LineCrash, ...] = ()
    num_crashes: int = 0


class LineResult(msgspec.Struct, frozen=True):
    """What came of one line of a job's input.

    Attributes:
        line: its number in the input file, from 1.
        failed: it belongs into the error file.
        data: the line of the output or error file: JSON, without a line break.
    """

    line: int
    failed: bool
    data: bytes


class BatchResults(ABC):
    """The results of one job. Raises as `BatchStore` does."""

    @abstractmethod
    async def add(self, results: Sequence[LineResult]) -> None:
        """Keep results: all of them, or (with an exception) none. They survive a crash once this returns.

        A line that has a result keeps it: a second one is dropped. The job's counts grow by what was not.
        """

    @abstractmethod
    async def done(self) -> Collection[int]:
        """Return the numbers of the lines that have a result."""

    @abstractmethod
    def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of the lines that failed, or of those that did not, by ascending number, in pieces."""


class BatchStore(ABC):
    """Keeps batch jobs. All methods are called on one event loop, which they do not hold up.

    Args:
        folder: to keep them in; None where the user named none.
        options: given by this name, and only to a store that has some: an instance of its `Options`.

    Raises:
        ConfigError: from the constructor: the folder cannot be used, with the reason.
        KeyError: from every method that is given an id: it is not there.
        StorageError: from every method: the store cannot do it now; nothing has changed.
        StorageFullError: there is no room for it; nothing has changed.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o batch_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None) -> None: ...

    @abstractmethod
    async def create(self, record: BatchRecord) -> None:
        """Keep a new job. It survives a crash once this returns."""

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
        """Return at most `limit` jobs, newest first: by descending ids.

        Args:
            tenants: only jobs that belong to one of these; None: all jobs.
            after: only those older than this one, which need not be there any more.
            unfinished: only those that have not ENDED.
        """

    @abstractmethod
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        """Replace a job's state if its status still is the expected one; return whether it was.

        `num_completed` and `num_failed` stay as the store has them. Once a job has ENDED its results are dropped:
        they are in its files.
        """

    @abstractmethod
    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        """Take a job, or keep it, for so many seconds from now; return False if another owner has it.

        An owner that has crashed so loses its jobs. With 0 seconds it gives the job up. A store that one process
        alone can open may forget all leases when it is opened.
        """

    @abstractmethod
    def results(self, batch_id: str) -> BatchResults:
        """Return the results of a job. Its methods raise KeyError, or this does, if it is not there or has ENDED."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. Nothing may be called afterwards."""
