"""Runs one batch job from its current state to its end.

The next step depends only on the job's record, which is read again before each step. A job therefore
continues correctly after a restart, after a store failure, and after a cancellation between two steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from llmfw.core.base.described import described
from llmfw.core.base.errors import EngineDeadError, LLMFWError, StorageError
from llmfw.core.interfaces.batch_store import ENDED, BatchError, BatchRecord, BatchStore, LineResult

from . import blame, states
from .backoff import Backoff
from .input_lines import InputGoneError, read_lines
from .job_context import JobContext
from .line_decoding import decode_line
from .line_run import AdapterChangedError, LineRun
from .output_files import write_files
from .output_lines import unrun
from .results import ResultBuffer
from .validation import Verdict, validate
from .work_marks import WHOLE_JOB

logger = logging.getLogger(__name__)

MAX_TRIES = 5  # most tries of a step that fails for an unknown reason
LAST_WORDS_S = 2.0  # longest time to store the remaining results when the server ends
FILL_GROUP = 500


class BrokenStoreError(Exception):
    """The batch store reported a change that it has not made."""


class Job:
    """A batch job that this process works on.

    Raises:
        KeyError: the job does not exist or has ended (raised by the constructor).
    """

    def __init__(self, batch_id: str, context: JobContext) -> None:
        self.id = batch_id
        self._context = context
        self._halted = asyncio.Event()
        self._backoff = Backoff(batch_id, context.retry_s)
        self._results = context.batches.results(batch_id)
        self._buffer = ResultBuffer(self._results, Backoff(batch_id, context.retry_s), context.counts)
        self._verdict: Verdict | None = None
        self._accusing: asyncio.Task[None] | None = None
        self._lost: list[
            tuple[frozenset[int], int]
        ] = []  # lines whose requests the engine had when it died, and the points to add
        self._steps: dict[str, Callable[[BatchRecord], Awaitable[None]]] = {
            "validating": self._validate,
            "in_progress": self._run,
            "finalizing": self._finish,
            "cancelling": self._cancel,
        }

    def halt(self) -> None:
        """Stop sending lines and abort the lines in flight, because the job's status has changed."""
        self._halted.set()

    async def work(self) -> None:
        """Run the job to its end. If the call is cancelled, a new call continues from the job's state."""
        try:
            while await self._step():
                pass
        except asyncio.CancelledError:
            with contextlib.suppress(LLMFWError, KeyError, TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._buffer.flush()
                    await self._accuse()
            raise

    async def _step(self) -> bool:
        """Do the next step; return False if the job has ended."""
        self._halted.clear()  # before the record is read, so that a later change is noticed
        try:
            await self._accuse()
            record = await self._record()
            if record is None or record.status in ENDED:
                return False
            await self._buffer.flush()
            if reason := blame.why_abandoned(record):
                await self._move(record, states.abandoned(record, _now(), reason))
            else:
                self._context.tenants.recall(record.tenant, record.limits)
                await self._steps[record.status](record)
        except StorageError as error:
            await self._backoff.wait(error)
        except AdapterChangedError as error:
            logger.warning("Batch %s stops its lines: %s", self.id, error)
        except EngineDeadError as error:
            logger.warning("Batch %s lost its lines in flight: %s", self.id, error)
        except Exception as error:  # noqa: BLE001 - no error may affect other jobs
            await self._handle_error(error)
        else:
            self._backoff.reset()
        return True

    async def _record(self) -> BatchRecord | None:
        try:
            return await self._context.batches.get(self.id)
        except KeyError:
            logger.warning("Batch %s is not in its store any more", self.id)
            return None

    async def _validate(self, record: BatchRecord) -> None:
        verdict = await self._input_verdict(record)
        if verdict.errors:
            await self._move(record, states.rejected(record, verdict.errors, _now()))
        else:
            accepted = states.accepted(record, verdict.num_lines, verdict.model, verdict.adapters, _now())
            await self._move(record, accepted)

    async def _run(self, record: BatchRecord) -> None:
        """Run all lines that have no result yet, until the job's time is up or it is halted."""
        seconds, end = record.expires_at - time.time(), "expired"
        try:
            if seconds > 0:
                end = await self._run_lines(record, seconds)
            if end == "expired":
                await self._fill(record, "batch_expired")
        except InputGoneError as error:
            await self._move(record, states.finalizing(record, "failed", _now(), [_gone(error)]))
            return
        if end == "completed":
            await self._check_results()
        if end != "halted":
            await self._move(record, states.finalizing(record, end, _now()))

    async def _check_results(self) -> None:
        """Raise BrokenStoreError if the store lacks results after all lines have run."""
        record = await self._context.batches.get(self.id)
        num_done = record.num_completed + record.num_failed
        if num_done < record.num_total:
            raise BrokenStoreError(
                f"the batch store counts {num_done} results of batch {self.id} after all of its "
                f"{record.num_total} lines have run"
            )

    async def _run_lines(self, record: BatchRecord, seconds: float) -> str:
        run = LineRun(record, self._context, self._results, self._buffer)
        try:
            return await run.until(self._halted, seconds)
        except (EngineDeadError, asyncio.CancelledError) as error:
            reason = str(error) or self._context.endpoints.failure_of(record.model) or ""
            if run.lost and (points := blame.points_of(reason)):
                self._lost.append((run.lost, points))
            raise

    async def _accuse(self) -> None:
        """Store the points (see `blame`) of the lines that were lost with the engine, if any."""
        while self._lost:
            if self._accusing is None:
                self._accusing = asyncio.create_task(accuse(self._context.batches, self.id, *self._lost[0]))
            await asyncio.wait({self._accusing})  # cancelling the wait does not cancel the task
            accusing, self._accusing = self._accusing, None
            accusing.result()
            self._lost.pop(0)

    async def _cancel(self, record: BatchRecord) -> None:
        """Give each line that did not run an error result, and end the job."""
        if record.in_progress_at is None and not record.num_total:
            verdict = await self._input_verdict(record)
            if verdict.errors:
                await self._move(record, states.ended(record, _now(), None, verdict.errors))
                return
            record = states.counted(record, verdict.num_lines, verdict.model)
            await self._context.batches.update(record, expected=record.status)
        errors = []
        try:
            await self._fill(record, "batch_cancelled")
        except InputGoneError as error:
            errors.append(_gone(error))
        await self._finish(record, errors)

    async def _finish(self, record: BatchRecord, errors: Sequence[BatchError] = ()) -> None:
        """Write the files and end the job."""
        await self._buffer.flush()
        counted = await self._context.batches.get(self.id)
        if counted.status == record.status:
            async with self._whole_job_marked(record):
                usage = await write_files(counted, self._results, self._context.files)
            await self._move(counted, states.ended(counted, _now(), usage, errors))

    async def _input_verdict(self, record: BatchRecord) -> Verdict:
        """Return the result of validating the input. Validates the input only once."""
        if self._verdict is None:
            files, endpoints = self._context.files, self._context.endpoints
            async with self._context.validating, self._whole_job_marked(record):
                self._verdict = await validate(
                    files, record.input_file_id, record.endpoint, endpoints, self._context.limits
                )
        return self._verdict

    @contextlib.asynccontextmanager
    async def _whole_job_marked(self, record: BatchRecord) -> AsyncIterator[None]:
        """Set the work mark WHOLE_JOB while the block runs.

        If the job has crashed a server before, run it alone.
        """
        windows = self._context.windows
        async with windows.alone(self.id) if record.num_crashes else contextlib.nullcontext():
            with self._context.marks.marked(self.id, WHOLE_JOB):
                yield

    async def _fill(self, record: BatchRecord, code: str) -> None:
        """Store an error with this code as the result of each line that has no result."""
        await self._buffer.flush()
        done = set(await self._results.done())
        if len(done) >= record.num_total:
            return
        num_added = 0
        async with contextlib.aclosing(read_lines(self._context.files, record.input_file_id)) as lines:
            async for number, raw in lines:
                if number not in done:
                    assert isinstance(raw, bytes)  # it was validated
                    self._buffer.add(LineResult(number, True, unrun(decode_line(raw).custom_id, code)))
                    num_added += 1
                    if num_added % FILL_GROUP == 0:
                        await self._buffer.flush()
        await self._buffer.flush()

    async def _handle_error(self, error: Exception) -> None:
        """Handle an unexpected error of a step.

        Waits before a retry; after MAX_TRIES retries, gives the job up.
        """
        logger.error("Batch %s failed at a step", self.id, exc_info=error)
        if self._backoff.tries < MAX_TRIES:
            await self._backoff.wait(error)
            return
        try:
            await self._give_up(error)
        except Exception as another:  # noqa: BLE001 - the step is retried until this succeeds
            await self._backoff.wait(another)

    async def _give_up(self, error: Exception) -> None:
        """Mark the job as failed. If it is finalizing or cancelling already, wait and retry instead."""
        record = await self._context.batches.get(self.id)
        message = f"the server failed on this batch: {described(error)}"
        reason = BatchError(code="internal_error", message=message)
        if record.status == "validating":
            await self._move(record, states.rejected(record, [reason], _now()))
        elif record.status == "in_progress":
            await self._fill(record, "batch_failed")
            await self._move(record, states.finalizing(record, "failed", _now(), [reason]))
        else:
            await self._backoff.wait(error)

    async def _move(self, record: BatchRecord, new: BatchRecord) -> None:
        """Move the job to its next state, unless its status has changed meanwhile.

        Raises:
            BrokenStoreError: the store still has the record, so that the step would be repeated forever.
        """
        is_replaced = await self._context.batches.update(new, expected=record.status)
        found = await self._context.batches.get(self.id)
        if found.status == record.status != new.status:
            raise BrokenStoreError(_not_replaced(record, new, is_replaced))
        if is_replaced:
            log_change(record.status, found)
            if found.status in ENDED:
                self._context.counts.note_end(found)


async def accuse(batches: BatchStore, batch_id: str, lines: Collection[int], points: int) -> None:
    """Add points (see `blame`) to the lines that a process was working on when it died.

    Args:
        lines: line numbers; WHOLE_JOB adds a crash of the job as a whole.

    Raises:
        StorageError: the points cannot be stored now.
    """
    before = None
    with contextlib.suppress(KeyError):  # the job does not exist
        while (record := await batches.get(batch_id)).status not in ENDED:
            done = set(await batches.results(batch_id).done())
            if record.status == before:
                raise StorageError(
                    f"the batch store did not update batch {batch_id}, which is still {before}"
                )
            new = blame.accused(record, set(lines) - done - {WHOLE_JOB}, points, done)
            if WHOLE_JOB in lines:
                new = blame.crashed_as_a_whole(new)
            if await batches.update(new, expected=record.status):
                return
            before = record.status


def log_change(before: str, record: BatchRecord) -> None:
    """Log a job's new state."""
    why = f": {_first(record.errors)}" if record.errors else ""
    logger.info(
        "Batch %s: %s → %s, %d lines, %d completed, %d failed%s",
        *(record.id, before, record.status, record.num_total, record.num_completed, record.num_failed, why),
    )


def _first(errors: Sequence[BatchError]) -> str:
    """Return the message of the first error, with its line number and a note if there are more."""
    where = "" if errors[0].line is None else f"line {errors[0].line}: "
    more = ", and more" if len(errors) > 1 else ""
    return f"{where}{errors[0].message}{more}"


def _not_replaced(record: BatchRecord, new: BatchRecord, is_replaced: bool) -> str:
    said = "said that it replaced" if is_replaced else "did not replace"
    return f"the batch store {said} the record of batch {record.id} by {new.status!r}, but it is still {record.status!r}"


def _gone(error: InputGoneError) -> BatchError:
    return BatchError(code="file_not_found", message=str(error))


def _now() -> int:
    return int(time.time())
