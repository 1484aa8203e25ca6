"""Responses: answers a request with a whole response, with a stream of events, or in the background.

Generates through `ChatService`, as chat completions do. Does not depend on HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from llmfw.api.background.tasks import run_in_own_task
from llmfw.api.chat.service import ChatService
from llmfw.api.http.errors import log_unexpected
from llmfw.api.http.sse import comment_on
from llmfw.api.schemas.responses import InputRequest, ItemList, Response, ResponsesRequest
from llmfw.api.text.by_model import ByModel
from llmfw.api.text.generation import Generation
from llmfw.api.text.terms import key_name
from llmfw.core.base.errors import (
    DeadlineError,
    EngineError,
    EngineRestartingError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)

from .background import Background
from .event_log import EventLog, EventLogs, Frames
from .ids import item_id, new_response_id
from .items import Item, check_calls, check_items, messages_of
from .job import Job
from .loads import Loads
from .memory import RUNNING, SERVER_ENDED, ResponseMemory, refers
from .output import Event
from .request import format_of, renamed, to_chat, tools_of
from .truncation import newest_that_fits

ROOM = 1024  # tokens that truncation leaves for an answer without max_output_tokens


class ResponseService:
    """Generates and stores responses.

    Args:
        chats: chat services that run the prompts, by the models that requests name.
        memory: memory of stored responses, already started.

    Attributes:
        body_type: class of the route's bodies: ResponsesRequest, or a subclass with the request fields of
            plugins.
    """

    def __init__(self, chats: ByModel[ChatService], memory: ResponseMemory) -> None:
        self._chats = chats
        self.body_type = chats.first.fields.body_type(ResponsesRequest, "/v1/responses")
        self._memory = memory
        self._background = Background(chats.map(lambda chat: chat.max_running))
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._logs = EventLogs()
        self._loads = Loads()

    async def finished(self) -> None:
        """Wait until no background response runs or is queued."""
        await self._background.finished()

    async def close(self) -> None:
        """Stop the background responses and mark them as failed."""
        for job in await self._background.close():
            if job.response.status in RUNNING:
                await self._fail(job, EngineError(SERVER_ENDED))
            self._end_events(job)

    async def prepare(self, body: ResponsesRequest) -> Job:
        """Return the job that answers a request, without starting it.

        Raises:
            RequestError: a field is wrong; names the field.
            EngineDeadError: the engine has died.
        """
        response_id = new_response_id()
        own, generation = await self._generation(body, response_id)
        response = _response(body, response_id, generation.model, generation)
        return Job(response, own, generation, key_name.get())

    async def reply(self, job: Job) -> Response:
        """Run a job to its end and return the response."""
        try:
            async with contextlib.aclosing(job.steps(may_restart=True)) as steps:
                async for _ in steps:
                    pass
        except RequestError as error:
            raise renamed(error) from error
        await self._memory.keep(job)
        return job.response

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Run a job, and yield its server-sent events. Failures are reported by an event.

        Raises:
            RequestError, OverloadedError, DeadlineError: only before the first event. No response exists
                then.
        """
        frames = Frames(job.response)
        begun = False
        try:
            async with contextlib.aclosing(job.steps()) as steps:
                async for step in steps:
                    if not begun:
                        yield frames.lifecycle("created") + frames.lifecycle("in_progress")
                        begun = True
                    yield b"".join(frames.encode(step)) or comment_on(job.wait)
            await self._memory.keep(job)
        except Exception as error:
            if not begun and isinstance(error, RequestError | OverloadedError | DeadlineError):
                raise
            if not begun:
                yield frames.lifecycle("created") + frames.lifecycle("in_progress")
            await self._fail(job, error)
        yield frames.lifecycle(job.response.status)

    async def run_in_background(self, job: Job) -> Response:
        """Start a job in the background, and return its response with status "queued".

        Raises:
            OverloadedError: the server has reached its limit of background responses.
            TenantLimitError: the tenant has reached its limit of background responses.
        """
        num_bytes = len(msgspec.json.encode(job.response)) + len(msgspec.json.encode(job.input))
        self._background.check(job.tenant, num_bytes)
        job.response.status = "queued"
        await self._memory.keep(job)
        queued = msgspec.structs.replace(job.response)
        self._background.start(job, num_bytes, self._work(job, self._logs.open(job.response)))
        return queued

    async def follow(self, response_id: str, after: int = -1) -> AsyncGenerator[bytes, None]:
        """Return an iterator of a background response's server-sent events, past and future.

        Args:
            after: sequence number of the last event that the client has; -1: none.

        Raises:
            NotFoundError: the response does not exist.
            RequestError: the events after this number are not stored.
        """
        await self._memory.find(response_id)
        log = self._logs.find(response_id)
        if log is None:
            raise RequestError(
                f"stream is true, and the events of response {response_id!r} are not kept: only those of background "
                "responses are, for a time and not over a restart; fetch it without stream",
                param="stream",
                code="unsupported_parameter",
            )
        log.check(after)
        return log.read(after)

    async def get(self, response_id: str) -> bytes:
        """Return a stored response as JSON; raise NotFoundError if it does not exist."""
        return await self._memory.text(response_id)

    async def delete(self, response_id: str) -> None:
        """Stop a response if it runs, and remove it; raise NotFoundError if it does not exist."""
        async with self._ending(response_id):
            await self._memory.find(response_id)
            await self._stop(response_id)
            self._logs.forget(response_id)
            await self._memory.delete(response_id)

    async def cancel(self, response_id: str) -> bytes:
        """Cancel a background response, and return it as JSON. A response that has ended does not change.

        Raises:
            NotFoundError: the response does not exist.
            RequestError: the response does not run in the background.
        """
        async with self._ending(response_id):
            if not await self._memory.is_background(response_id):
                raise RequestError(
                    f"response {response_id!r} does not run in the background; only one that does can be cancelled",
                    param="response_id",
                )
            job = await self._stop(response_id)
            if job is not None:
                await self._memory.keep(job)
            return await self.get(response_id)

    async def input_items(
        self, response_id: str, *, after: str | None, limit: int, newest_first: bool
    ) -> ItemList:
        """Return one page of a response's input items (see `ResponseMemory.page`)."""
        async with self._loads.of(key_name.get()) as load:
            return await self._memory.page(
                response_id, load, after=after, limit=limit, newest_first=newest_first
            )

    async def count_tokens(self, body: InputRequest) -> int:
        """Return the number of prompt tokens of a request; raise RequestError as `prepare` does."""
        _, generation = await self._generation(body, new_response_id())
        return len(generation.choices[0].request.prompt)

    async def _generation(self, body: InputRequest, response_id: str) -> tuple[list[Item], Generation]:
        """Return the input's items, and the generation that answers the earlier turns and these items."""
        if body.previous_response_id is None and not refers(body.input):
            return await self._prepared(body, response_id, [], body.input)
        async with self._loads.of(key_name.get()) as load:
            earlier = await self._memory.conversation(body.previous_response_id, load)
            given = await self._memory.resolved(body.input, load)
            load.loaded()
            return await self._prepared(body, response_id, earlier, given)

    async def _prepared(
        self, body: InputRequest, response_id: str, earlier: list[Item], given: str | Sequence[Item]
    ) -> tuple[list[Item], Generation]:
        chat, taken = self._chats.of(body.model), {item["id"] for item in earlier}
        own = check_items(
            given,
            lambda i, prefix: item_id(prefix, response_id, "i", i),
            taken,
            images=chat.reads_images,
        )
        items = [*earlier, *own]
        params = {item["id"]: f"input[{i}]" for i, item in enumerate(own)}
        check_calls(items, len(earlier))

        async def start(items: Sequence[Item]) -> Generation:
            generation = await chat.start(to_chat(body, messages_of(items, params)))
            generation.rename(f"chatcmpl-{response_id.removeprefix('resp_')}")  # to find its trace by this id
            return generation

        try:
            if body.truncation == "auto":
                asked = isinstance(body, ResponsesRequest) and body.max_output_tokens is not None
                return own, await newest_that_fits(items, start, _fits if asked else _has_room)
            return own, await start(items)
        except RequestError as error:
            raise renamed(error) from error

    async def _work(self, job: Job, log: EventLog) -> None:
        """Run a background job. The job's status becomes "in_progress" when the engine starts to work on it.

        If this task is cancelled, the caller must set the response's final status.
        """
        log.show("created")
        log.show("queued")
        try:
            await run_in_own_task(self._run(job, log))
        except Exception as error:  # noqa: BLE001 - no client waits; the response reports the error
            await self._fail(job, error)
        self._end_events(job)

    async def _run(self, job: Job, log: EventLog) -> None:
        """Run a background job to its end, and store its response."""
        async with contextlib.aclosing(self._patient_steps(job)) as steps:
            async for step in steps:
                if job.wait is not None:
                    continue
                if job.response.status == "queued":
                    job.response.status = "in_progress"
                    await self._memory.keep(job)
                    log.show("in_progress")
                if job.has_restarted:
                    log.show("in_progress")  # has no output, so clients drop the output that they have
                log.add(step)
        await self._memory.keep(job)

    async def _patient_steps(self, job: Job) -> AsyncGenerator[list[Event], None]:
        """Wait for a job's turn, and yield its steps.

        While a job waits because its tenant has reached its limits, other jobs get its turn.
        """
        while True:
            try:
                async with self._background.turn(job), contextlib.aclosing(_patient_steps(job)) as steps:
                    async for step in steps:
                        yield step
                return
            except TenantLimitError as error:
                await asyncio.sleep(error.retry_after_s)

    def _ending(self, response_id: str) -> asyncio.Lock:
        """Return the lock of a response, which `cancel` and `delete` hold.

        Without it, a response could be deleted while it is cancelled, and then be stored again.
        """
        return self._locks.setdefault(response_id, asyncio.Lock())

    async def _stop(self, response_id: str) -> Job | None:
        """Stop a background job; return it once it is cancelled or has ended, or None if no such job runs."""
        job = await self._background.stop(response_id)
        if job is not None:
            if job.response.status in RUNNING:
                job.cancel()
            self._end_events(job)
        return job

    def _end_events(self, job: Job) -> None:
        """Add the last event, with the job's final status, to its event log, unless the log has ended."""
        log, status = self._logs.find(job.response.id), job.response.status
        if log is not None and not log.ended:
            log.end("failed" if status == "cancelled" else status)  # OpenAI has no event "cancelled"

    async def _fail(self, job: Job, error: Exception) -> None:
        log_unexpected(error, f"response {job.response.id}")
        job.fail(error)
        try:
            await self._memory.keep(job)
        except Exception as another:  # noqa: BLE001 - the store may have caused the failure
            log_unexpected(another, f"storing response {job.response.id}")


async def _patient_steps(job: Job) -> AsyncGenerator[list[Event], None]:
    """Yield the steps of a job.

    While the engine is full or restarts, wait and retry: no client waits for the job.

    Raises:
        TenantLimitError: the job's tenant has reached its limits.
    """
    while True:
        try:
            async with contextlib.aclosing(job.steps(may_restart=True)) as steps:
                async for step in steps:
                    yield step
            return
        except TenantLimitError:
            raise
        except (OverloadedError, EngineRestartingError) as error:
            await asyncio.sleep(error.retry_after_s)


def _fits(_: Generation) -> bool:
    """Return True, because `start` has already checked that the requested max_output_tokens fit."""
    return True


def _has_room(generation: Generation) -> bool:
    """Return whether the context leaves room for an answer whose length the request does not limit.

    The answer needs ROOM tokens, or a quarter of the context if that is less.
    """
    request = generation.choices[0].request
    left = request.sampling.max_tokens or 0
    return left >= min(ROOM, (len(request.prompt) + left) // 4)


def _response(body: ResponsesRequest, response_id: str, model: str, generation: Generation) -> Response:
    """Return the response object of a request in its initial state: in progress, without output."""
    sampling = generation.choices[0].request.sampling
    reasoning: dict[str, Any] = {"effort": body.reasoning.effort if body.reasoning else None, "summary": None}
    return Response(
        id=response_id,
        created_at=generation.created,
        status="in_progress",
        background=bool(body.background),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        model=model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=reasoning,
        safety_identifier=body.safety_identifier,
        store=body.store is not False,
        temperature=sampling.temperature,
        text={"format": format_of(body), "verbosity": None},
        tool_choice=body.tool_choice or "auto",
        tools=tools_of(body),
        top_logprobs=body.top_logprobs or 0,
        top_p=sampling.top_p,
        truncation=body.truncation or "disabled",
        user=UNSET if body.user is None else body.user,
    )
