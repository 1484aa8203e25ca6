"""Implements `ServerAPI`: answers requests in OpenAI's format with the services of the server's routes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar.types import ASGIApp

from llmfw.api.access.scopes import check_path_scope
from llmfw.api.completions.fill_in import find_layout
from llmfw.api.http.body import decode_body, decode_checked, decode_generation, fields_of, report_ignored
from llmfw.api.http.errors import body_of, log_unexpected, retry_advice, status_of
from llmfw.api.routes.chat import answer_chat
from llmfw.api.routes.completions import answer_completion
from llmfw.api.routes.embeddings import answer_embedding
from llmfw.api.routes.respond import read_json, while_connected
from llmfw.api.schemas.embeddings import EmbeddingRequest
from llmfw.api.services.model_services import ModelServices
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.server_api import Failure, ServedModel, ServerAPI

from .events import chunks_of

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT")

_Frames = AsyncGenerator[bytes, None]
_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class InProcessAPI(ServerAPI):
    """Answers requests of plugins' routes.

    Args:
        models: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    def __init__(self, models: ByModel[ModelServices], *, strict: bool) -> None:
        self._chats = models.map(lambda model: model.live.chat)
        self._completions = models.map(lambda model: model.live.completions)
        self._embedders = models.map(lambda model: model.live.embeddings)
        self._strict = strict
        created = int(time.time())
        self._models = models.map(lambda model: (model.names, _described(model, created)))
        self._replies: Mapping[str, Callable[[bytes], Awaitable[msgspec.Struct]]] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embeddings,
        }
        self._routes: Mapping[str, Callable[..., Awaitable[ASGIApp]]] = {
            "/v1/chat/completions": partial(answer_chat, self._chats),
            "/v1/completions": partial(answer_completion, self._completions),
            "/v1/embeddings": partial(answer_embedding, self._embedders),
        }
        self._frames: Mapping[str, Callable[[bytes], Awaitable[_Frames]]] = {
            "/v1/chat/completions": self._chat_frames,
            "/v1/completions": self._completion_frames,
        }

    @property
    def model(self) -> ServedModel:
        """The server's model, or its first one."""
        return self.model_named(None)

    @property
    def models(self) -> Sequence[ServedModel]:
        """All models of the server."""
        return [self.model_named(name) for name in self._models.served_names]

    def model_named(self, model: str | None) -> ServedModel:
        """Return the model that a request names; None: the first."""
        names, found = self._models.of(model)
        return msgspec.structs.replace(found, adapters=names.adapters) if names.adapters else found

    async def read(self, request: Any, kind: type[BodyT]) -> tuple[BodyT, list[str]]:
        """Read the JSON body of a request; return it with the names of unknown fields."""
        raw = await read_json(request, any_type=True)
        body = decode_body(raw, kind)
        return body, sorted(_unknown(body, raw))

    async def read_object(self, request: Any) -> dict[str, msgspec.Raw]:
        """Read the JSON body of a request; return its members, not decoded."""
        return fields_of(await read_json(request, any_type=True))

    async def forward(self, request: Any, path: str, body: Mapping[str, Any]) -> ASGIApp:
        """Return the response of the route at `path` to a body."""
        check_path_scope(path)
        return await self._routes[path](msgspec.json.encode(body), request.receive, strict=self._strict)

    def report(self, ignored: Sequence[str]) -> dict[str, str]:
        """Return the header that names ignored request fields; {} if there are none.

        Raises:
            RequestError: fields are ignored, and the server was started with --strict-params.
        """
        return report_ignored(sorted(ignored), self._strict)

    async def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request as the route at `path` does, and return its decoded reply."""
        check_path_scope(path)
        reply = await _at(path, self._replies)(msgspec.json.encode(body))
        return msgspec.json.decode(msgspec.json.encode(reply), type=dict[str, Any])

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the decoded chunks that the route at `path` streams; None for an event without a chunk."""
        check_path_scope(path)
        frames = await _at(path, self._frames)(msgspec.json.encode({**body, **_USAGE}))
        async with contextlib.aclosing(frames):
            async for data in frames:
                chunks = chunks_of(data)
                if not chunks:
                    yield None
                for chunk in chunks:
                    yield chunk

    async def while_connected(self, request: Any, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Return the result of a coroutine; cancel the coroutine if the client disconnects first."""
        return await while_connected(request.receive, work)

    def failure(self, error: Exception) -> Failure:
        """Return an exception as the client sees it; log the exception if the client did not cause it."""
        log_unexpected(error, "a request of a plugin's route")
        status, detail = status_of(error), body_of(error).error
        return Failure(
            status=status,
            message=detail.message,
            param=detail.param,
            code=detail.code,
            headers={**(getattr(error, "headers", None) or {}), **retry_advice(error, status)},
        )

    async def _chat(self, raw: bytes) -> msgspec.Struct:
        body, ignored = decode_generation(raw, self._chats.first.body_type)
        _refuse(ignored)
        service = self._chats.of(body.model)
        return await service.reply(await service.start(body))

    async def _chat_frames(self, raw: bytes) -> _Frames:
        body, ignored = decode_generation(raw, self._chats.first.body_type)
        _refuse(ignored)
        service = self._chats.of(body.model)
        return service.stream(await service.start(body), include_usage=True)

    async def _completion(self, raw: bytes) -> msgspec.Struct:
        body, ignored = decode_generation(raw, self._completions.first.body_type)
        _refuse(ignored)
        service = self._completions.of(body.model)
        return await service.reply(await service.start(body, default_max_tokens=None))

    async def _completion_frames(self, raw: bytes) -> _Frames:
        body, ignored = decode_generation(raw, self._completions.first.body_type)
        _refuse(ignored)
        service = self._completions.of(body.model)
        return service.stream(await service.start(body, default_max_tokens=None), include_usage=True)

    async def _embeddings(self, raw: bytes) -> msgspec.Struct:
        body, ignored = decode_checked(raw, EmbeddingRequest)
        _refuse(ignored)
        return await self._embedders.of(body.model).reply(body)


def _at(path: str, known: Mapping[str, Callable[[bytes], ResultT]]) -> Callable[[bytes], ResultT]:
    """Return the function that answers requests at a path; raise ValueError if the path is unknown."""
    if path not in known:
        raise ValueError(f"there is no path {path!r:.80} to call; known: {', '.join(known)}")
    return known[path]


def _unknown(body: msgspec.Struct, raw: bytes | msgspec.Raw, prefix: str = "") -> list[str]:
    """Return the names of a body's unknown fields, except fields whose value is null."""
    given = fields_of(raw)
    known = {field.encode_name: getattr(body, field.name) for field in msgspec.structs.fields(body)}
    found = [prefix + name for name in given.keys() - known.keys() if bytes(given[name]).strip() != b"null"]
    for name, value in known.items():
        if isinstance(value, msgspec.Struct) and name in given:
            found += _unknown(value, given[name], f"{prefix}{name}.")
    return found


def _refuse(ignored: Sequence[str]) -> None:
    """Raise RequestError for fields without effect, which a plugin should not send."""
    if ignored:
        raise RequestError(
            f"{ignored[0]} has no effect on this server; leave it out",
            param=ignored[0],
            code="unsupported_parameter",
        )


def _described(model: ModelServices, created: int) -> ServedModel:
    return ServedModel(
        name=model.names.served_name,
        created=created,
        template=model.components.chat_template.source,
        capabilities=frozenset(_capabilities(model)),
        info=model.client.info,
    )


def _capabilities(model: ModelServices) -> list[str]:
    """Return the model's capabilities (see `ServedModel`)."""
    task, components = model.live.generator.info.task, model.components
    if task == "embed":
        return ["embedding"]
    if task == "classify":
        return ["classification"]
    found = ["completion"]
    if components.tool_parser is not None:
        found.append("tools")
    if components.reasoning_parser is not None:
        found.append("thinking")
    with contextlib.suppress(RequestError):
        find_layout(components.tokenizer)
        found.append("insert")
    return found
