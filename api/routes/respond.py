"""Helpers of the routes: read a JSON body, cancel work when the client disconnects, and reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException, InternalServerException
from litestar.response.base import ASGIResponse
from litestar.types import Receive

from llmfw.api.background.tasks import end, self_cancelled
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.http.reply_encoding import encode_reply
from llmfw.api.http.sse import EventStreamResponse
from llmfw.api.schemas.admin import NoFields
from llmfw.api.server.bodies import CLIENT_CLOSED_REQUEST, BodyReader, check_encoding
from llmfw.api.server.memory import Memory
from llmfw.api.text.terms import key_name

LARGE_REPLY_BYTES = 2**20
"""Size of a reply above which memory is returned to the system afterwards."""

ResultT = TypeVar("ResultT")
StartedT = TypeVar("StartedT")
BodyT = TypeVar("BodyT", bound=msgspec.Struct | Sequence[msgspec.Struct])


async def read_json(request: Request[Any, Any, Any], *, any_type: bool = False) -> bytes:
    """Return the body of a request whose content type is JSON or not given.

    Args:
        any_type: whether to accept every content type.

    Raises:
        HTTPException: 415 for another content type, encoding or charset; 413 for a body that is too large.
        RequestError: the body has more values or deeper nesting than the limits allow.
        OverloadedError: the server has no memory for the body now.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not any_type and kind and kind != "application/json" and not kind.endswith("+json"):
        raise HTTPException(
            f"content-type is {kind!r}; send JSON with 'content-type: application/json'", status_code=415
        )
    check_encoding(request)
    reader: BodyReader = request.app.state.bodies
    try:
        return await reader.read(
            request, owner=key_name.get() or (request.client.host if request.client else "")
        )
    except InternalServerException as error:
        raise HTTPException("the client closed the request", status_code=CLIENT_CLOSED_REQUEST) from error


async def read_nothing(request: Request[Any, Any, Any], strict: bool) -> dict[str, str]:
    """Read the body of a request that needs none; return the header that names its fields.

    Raises:
        RequestError: the body is neither empty nor a JSON object; or it has fields, and `strict` is true.
    """
    raw = await read_json(request, any_type=True)
    if not raw.strip():
        return {}
    return report_ignored(sorted(decode_checked(raw, NoFields)[1]), strict)


def model_in(request: Request[Any, Any, Any]) -> str | None:
    """Return the model that the query of a request names, for a route that declares the parameter `model`."""
    return request.query_params.get("model")


def json_response(
    body: msgspec.Struct | Sequence[msgspec.Struct], headers: Mapping[str, str] | None = None
) -> ASGIResponse:
    """Return a JSON reply with status 200."""
    return _encoded_response(msgspec.json.encode(body), headers)


def _encoded_response(body: bytes, headers: Mapping[str, str] | None) -> ASGIResponse:
    return ASGIResponse(body=body, media_type="application/json", headers=dict(headers or {}))


async def while_connected(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Return the result of a coroutine. If the client disconnects first, cancel it and raise HTTPException.

    Args:
        receive: `receive` of a request whose body has been read, so that its next message is the disconnect.

    Raises:
        SelfCancelledError: the code of the coroutine, such as a plugin's parser, has cancelled its own task.
    """
    caller = asyncio.current_task()
    before = caller.cancelling() if caller is not None else 0
    working = asyncio.create_task(work)
    going = asyncio.ensure_future(receive())
    going.add_done_callback(partial(_stop, working))
    try:
        return await working
    except BaseException as error:
        if caller is not None and caller.cancelling() > before:
            raise
        if going.done() and working.cancelling():
            gone = HTTPException("the client closed the request", status_code=CLIENT_CLOSED_REQUEST)
            raise gone from error
        if working.cancelled():
            raise self_cancelled() from error
        raise
    finally:
        await end(going)
        # A task's exception refers to this frame. If the frame kept the tasks, the request's body would live
        # until the next garbage collection.
        del caller, working, going


def _stop(working: asyncio.Task[Any], going: asyncio.Future[Any]) -> None:
    working.cancel()
    if not going.cancelled():
        going.exception()  # without this, asyncio would log an exception of `receive`


async def answer(
    receive: Receive,
    starting: Coroutine[Any, Any, StartedT],
    *,
    reply: Callable[[StartedT], Coroutine[Any, Any, BodyT]],
    stream: Callable[[StartedT], AsyncGenerator[bytes, None]],
    streams: bool | None,
    headers: Mapping[str, str] | None = None,
) -> ASGIResponse | EventStreamResponse:
    """Start a generation, and respond with its stream or with its whole reply.

    Args:
        receive: `receive` of the request, whose body has been read (see `while_connected`).
        starting: coroutine that starts the generation.
        reply, stream: take the started generation, and return its whole reply or the frames of its stream.
        streams: whether the client asks for a stream.
    """

    async def frames() -> AsyncGenerator[bytes, None]:
        return stream(await starting)

    async def whole() -> bytes:
        return await encode_reply(await reply(await starting))

    if streams:
        return await event_stream(receive, frames(), headers)
    body = await while_connected(receive, whole())
    if len(body) > LARGE_REPLY_BYTES:
        Memory().used()
    return _encoded_response(body, headers)


async def event_stream(
    receive: Receive,
    starting: Awaitable[AsyncGenerator[bytes, None]],
    headers: Mapping[str, str] | None = None,
) -> EventStreamResponse:
    """Wait for the first frame of a stream, and return the response that sends all frames.

    An error before the first frame is raised, so that the client gets a normal error reply.

    Args:
        receive: `receive` of the request, whose body has been read (see `while_connected`).
        starting: coroutine that returns the iterator of frames; cancelled if the client disconnects. The
            first frame, which may be empty, must come as soon as the request has been accepted.
    """

    async def first() -> tuple[AsyncGenerator[bytes, None], bytes]:
        frames = await starting
        try:
            return frames, await anext(frames, b"")
        except BaseException:
            await frames.aclose()
            raise

    frames, begun = await while_connected(receive, first())
    return EventStreamResponse(frames, headers, begun)
