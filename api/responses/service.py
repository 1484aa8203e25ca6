"""Responses: a body becomes a chat, its generation a response: at once, as a stream, or in the background.

Knows nothing of HTTP. What is generated goes through `ChatService`, as chat completions do.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from msgspec import UNSET

from llmfw.core.errors import RequestError

from ..chat import ChatService
from ..errors import log_unexpected
from ..generation import Generation
from ..schemas.responses import InputRequest, ItemList, Response, ResponsesRequest
from ..sse import frame
from .background import Background
from .ids import item_id, new_response_id
from .items import Item, check_calls, check_items, messages_of
from .job import Job
from .memory import RUNNING, ResponseMemory
from .output import Event
from .request import format_of, renamed, to_chat, tools_of

_encode = msgspec.json.Encoder().encode


class ResponseService:
    """Answers with responses, and remembers them.

    Args:
        chat: generates.
        memory: is started and closed with it.
        model: its served name.
    """

    def __init__(self, chat: ChatService, memory: ResponseMemory, model: str) -> None:
        self._chat = chat
        self._memory = memory
        self._model = model
        self._background = Background()

    async def start(self) -> None:
        """Settle what an earlier server left."""
        await self._memory.start()

    async def close(self) -> None:
        """Stop what runs in the background. When a server uses the same store again, it calls these failed."""
        await self._background.close()
        await self._memory.close()

    async def prepare(self, body: ResponsesRequest) -> Job:
        """Return the job that answers a body. Nothing runs yet.

        Raises:
            RequestError: names the field that is wrong.
            EngineDeadError: nothing can be generated any more.
        """
        response_id = new_response_id()
        own, generation = await self._generation(body, response_id)
        response = _response(body, response_id, self._model, generation)
        return Job(response, own, generation)

    async def reply(self, job: Job) -> Response:
        """Run a job to its end and return the response."""
        try:
            async with contextlib.aclosing(job.steps()) as steps:
                async for _ in steps:
                    pass
        except RequestError as error:
            raise renamed(error) from error
        await self._memory.keep(job)
        return job.response

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Run a job, and yield its server-sent events. A failure is one of them."""
        events = _Events(job.response)
        yield events.lifecycle("created") + events.lifecycle("in_progress")
        try:
            async with contextlib.aclosing(job.steps()) as steps:
                async for step in steps:
                    if step:
                        yield events.encode(step)
            await self._memory.keep(job)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            await self._fail(job, error)
        yield events.lifecycle(job.response.status)

    async def run_in_background(self, job: Job) -> Response:
        """Begin a job that nobody waits for, and return the response as it is now: queued."""
        job.response.status = "queued"
        await self._memory.keep(job)
        queued = msgspec.structs.replace(job.response)
        self._background.start(job, self._work(job))
        return queued

    async def get(self, response_id: str) -> bytes:
        """Return a stored response as JSON; raise NotFoundError if it is not there."""
        return (await self._memory.find(response_id)).response

    async def delete(self, response_id: str) -> None:
        """Remove a stored response, and stop it if it runs; raise NotFoundError if it is not there."""
        await self._memory.find(response_id)
        await self._background.stop(response_id)
        await self._memory.delete(response_id)

    async def cancel(self, response_id: str) -> bytes:
        """Stop a background response, and return it as JSON. One that has ended stays as it is.

        Raises:
            NotFoundError: it is not there.
            RequestError: it is none of the background.
        """
        record = await self._memory.find(response_id)
        if not msgspec.json.decode(record.response)["background"]:
            raise RequestError(
                f"response {response_id!r} does not run in the background; only one that does can be cancelled",
                param="response_id",
            )
        job = await self._background.stop(response_id)
        if job is not None:
            if job.response.status in RUNNING:
                job.cancel()
            await self._memory.keep(job)
        return await self.get(response_id)

    async def input_items(
        self, response_id: str, *, after: str | None, limit: int, newest_first: bool
    ) -> ItemList:
        """As `ResponseMemory.page`."""
        return await self._memory.page(response_id, after=after, limit=limit, newest_first=newest_first)

    async def count_tokens(self, body: InputRequest) -> int:
        """Return how many tokens the prompt of a body has; raise RequestError as `prepare`."""
        _, generation = await self._generation(body, new_response_id())
        return len(generation.choices[0].request.prompt)

    async def _generation(self, body: InputRequest, response_id: str) -> tuple[list[Item], Generation]:
        """Return the input's own items, and what answers them and those of earlier turns."""
        earlier = await self._memory.conversation(body.previous_response_id)
        given = await self._memory.resolved(body.input)
        taken = {item["id"] for item in earlier}
        own = check_items(given, lambda i, prefix: item_id(prefix, response_id, "i", i), taken)
        items = [*earlier, *own]
        check_calls(items, len(earlier))
        try:
            return own, await self._chat.start(to_chat(body, messages_of(items)))
        except RequestError as error:
            raise renamed(error) from error

    async def _work(self, job: Job) -> None:
        """Run a job of the background. It is in progress from its first step on.

        Whoever cancels this says what becomes of the response.
        """
        try:
            async with contextlib.aclosing(job.steps()) as steps:
                async for _ in steps:
                    if job.response.status == "queued":
                        job.response.status = "in_progress"
                        await self._memory.keep(job)
            await self._memory.keep(job)
        except Exception as error:  # noqa: BLE001 - nobody waits: the response says it
            await self._fail(job, error)

    async def _fail(self, job: Job, error: Exception) -> None:
        log_unexpected(error, f"response {job.response.id}")
        job.fail(error)
        try:
            await self._memory.keep(job)
        except Exception as another:  # noqa: BLE001 - it may be the store that failed
            log_unexpected(another, f"storing response {job.response.id}")


class _Events:
    """Encodes the events of one stream, and numbers them."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._number = 0

    def lifecycle(self, status: str) -> bytes:
        """Return the event that shows the whole response."""
        return self.encode([{"type": f"response.{status}", "response": self._response}])

    def encode(self, events: list[Event]) -> bytes:
        """Return the frames of some events, each with its name in a line of its own."""
        frames = []
        for event in events:
            numbered = {**event, "sequence_number": self._number}
            frames.append(b"event: %b\n%b" % (event["type"].encode(), frame(_encode(numbered))))
            self._number += 1
        return b"".join(frames)


def _response(body: ResponsesRequest, response_id: str, model: str, generation: Generation) -> Response:
    """Return the response as it is before anything was generated."""
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
        user=UNSET if body.user is None else body.user,
    )
