"""Ollama's routes that run the model: /api/chat, /api/generate, /api/embed and /api/embeddings."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from litestar import Controller, Request, post
from litestar.datastructures import State
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.core import RequestError, ServerAPI, describe

from .bodies import AnswerBody, ChatBody, EmbedBody, EmbeddingsBody, GenerateBody
from .errors import OLLAMA_HANDLERS
from .lines import begin
from .names import model_in
from .reply import Json, Piece, ReplyReader, chat_fields, generate_fields, head, joined
from .requests import Inner, inner_chat, inner_generate, ollama_error

EMBEDDINGS = "/v1/embeddings"
Fields = Callable[[Piece], Json]
HTTPRequest = Request[Any, Any, Any]


class Answers(Controller):
    """Ollama's routes that run the model."""

    exception_handlers = OLLAMA_HANDLERS

    @post("/api/chat", status_code=200, opt=describe("Answer a chat.", scope="generate"))
    async def chat(self, request: HTTPRequest, state: State) -> ASGIApp:
        """Answer a chat."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, ChatBody)
        named = model_in(body.model, api.models)
        if not body.messages:
            return _loaded(api, body, ignored, chat_fields)
        return await _answer(api, request, body, inner_chat(body, *named), ignored, chat_fields)

    @post("/api/generate", status_code=200, opt=describe("Continue or answer a prompt.", scope="generate"))
    async def generate(self, request: HTTPRequest, state: State) -> ASGIApp:
        """Continue or answer a prompt."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, GenerateBody)
        named = model_in(body.model, api.models)
        if not body.prompt and not body.suffix:
            return _loaded(api, body, ignored, generate_fields)
        return await _answer(api, request, body, inner_generate(body, *named), ignored, generate_fields)

    @post(
        "/api/embed",
        status_code=200,
        opt=describe("Embed texts, and scale each vector to length 1.", scope="embed"),
    )
    async def embed(self, request: HTTPRequest, state: State) -> ASGIApp:
        """Embed texts, and scale each vector to length 1."""
        started = time.perf_counter_ns()
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, EmbedBody)
        name, _ = model_in(body.model, api.models)
        headers = api.report(ignored)
        vectors: list[list[float]] = []
        count = 0
        if body.input:
            vectors, count = await _embed(api, request, {"model": name, "input": body.input}, {})
            vectors = [_cut(vector, body.dimensions) for vector in vectors]
        reply = {
            "model": body.model,
            "embeddings": [_of_length_1(vector) for vector in vectors],
            "total_duration": time.perf_counter_ns() - started,
            "load_duration": 0,
            "prompt_eval_count": count,
        }
        return _json(reply, headers)

    @post(
        "/api/embeddings",
        status_code=200,
        opt=describe("Embed one text, in the form of older clients.", scope="embed"),
    )
    async def embeddings(self, request: HTTPRequest, state: State) -> ASGIApp:
        """Embed one text, in the form of older clients. Returns the model's vector as it is."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, EmbeddingsBody)
        name, _ = model_in(body.model, api.models)
        headers = api.report(ignored)
        vectors: list[list[float]] = [[]]
        if body.prompt:
            vectors, _ = await _embed(
                api, request, {"model": name, "input": body.prompt}, {"input": "prompt"}
            )
        return _json({"embedding": vectors[0]}, headers)


async def _answer(
    api: ServerAPI, request: HTTPRequest, body: AnswerBody, inner: Inner, ignored: list[str], fields: Fields
) -> ASGIApp:
    """Return the response to a request: one JSON object if `stream` is false, otherwise a stream of lines."""
    headers = api.report(ignored + inner.ignored)
    if body.stream is not False:
        return await begin(api, request, _lines(api, body.model, inner, fields), headers)

    async def whole() -> Json:
        reader = ReplyReader()
        async with contextlib.aclosing(_pieces(api, inner, reader)) as source:
            pieces = [piece async for piece in source]
        return {**head(body.model), **fields(joined(pieces)), **_end(reader)}

    return _json(await api.while_connected(request, whole()), headers)


async def _pieces(api: ServerAPI, inner: Inner, reader: ReplyReader) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of an answer. While the request waits in the queue, yields empty pieces."""
    try:
        async with contextlib.aclosing(api.stream(inner.path, inner.body)) as chunks:
            async for chunk in chunks:
                yield Piece() if chunk is None else reader.feed(chunk)
    except RequestError as error:
        raise ollama_error(error, inner.names) from error


async def _lines(api: ServerAPI, model: str, inner: Inner, fields: Fields) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream; b"" for an empty piece.

    An error after the first piece becomes the last line.
    """
    begun, reader = False, ReplyReader()
    try:
        async with contextlib.aclosing(_pieces(api, inner, reader)) as pieces:
            async for piece in pieces:
                begun = True
                yield _line({**head(model), **fields(piece), "done": False}) if piece else b""
        yield _line({**head(model), **fields(Piece()), **_end(reader)})
    except Exception as error:
        if not begun:
            raise
        yield _line({"error": api.failure(error).message})


async def _embed(
    api: ServerAPI, request: HTTPRequest, inner: Json, names: dict[str, str]
) -> tuple[list[list[float]], int]:
    """Return the vector of each text, and the number of tokens of all texts."""
    try:
        reply = await api.while_connected(
            request, api.call(EMBEDDINGS, {**inner, "encoding_format": "float"})
        )
    except RequestError as error:
        raise ollama_error(error, names) from error
    return [each["embedding"] for each in reply["data"]], reply["usage"]["prompt_tokens"]


def _loaded(api: ServerAPI, body: AnswerBody, ignored: list[str], fields: Fields) -> ASGIApp:
    """Return the reply to a request without a prompt, which Ollama's clients send to load or unload a model.

    Raises:
        RequestError: the request asks to unload the model.
    """
    if body.keep_alive in (0, "0", "0s", "0m", "0h"):
        raise RequestError(
            f"keep_alive is {body.keep_alive}, to unload the model; this server keeps it until the server stops",
            param="keep_alive",
            code="unsupported_operation",
        )
    if body.keep_alive is not None:
        ignored = [*ignored, "keep_alive"]
    reply = {**head(body.model), **fields(Piece()), "done": True, "done_reason": "load"}
    return _json(reply, api.report(ignored))


def _end(reader: ReplyReader) -> Json:
    return {"done": True, "done_reason": reader.reason, **reader.figures()}


def _cut(vector: list[float], dimensions: int | None) -> list[float]:
    """Return the first `dimensions` numbers of a vector. As in Ollama, this works with every model."""
    if dimensions is not None and not 1 <= dimensions <= len(vector):
        raise RequestError(
            f"dimensions is {dimensions}; this model's vectors can be cut to 1 to {len(vector)}",
            param="dimensions",
        )
    return vector[:dimensions]


def _of_length_1(vector: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(each * each for each in vector))
    return [each / length for each in vector] if length else vector


def _line(reply: Json) -> bytes:
    return msgspec.json.encode(reply) + b"\n"


def _json(reply: Json, headers: dict[str, str]) -> ASGIApp:
    return ASGIResponse(body=msgspec.json.encode(reply), media_type="application/json", headers=headers)
