"""The endpoints that batch lines may request: maps each path to the method that answers a request body.

The methods use the same services and checks as the routes, but do not need a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from llmfw.api.chat.service import ChatService
from llmfw.api.completions.service import CompletionService
from llmfw.api.embeddings.embeddings import EmbeddingService
from llmfw.api.http.body import decode_checked, decode_generation, report_ignored
from llmfw.api.http.errors import body_of, log_unexpected, status_of
from llmfw.api.responses.request import decode_request
from llmfw.api.responses.service import ResponseService
from llmfw.api.schemas.embeddings import EmbeddingRequest
from llmfw.api.text.generation import Generator
from llmfw.core.base.errors import (
    CrashingRequestError,
    EngineDeadError,
    LLMFWError,
    OverloadedError,
    RequestError,
    StorageError,
)

from .paths import SUPPORTED, TASKS


class Answering(Protocol):
    """The services that handle request bodies (`api.services.Answering`)."""

    generator: Generator
    chat: ChatService
    completions: CompletionService
    embeddings: EmbeddingService
    responses: ResponseService


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request body.

    Attributes:
        status: HTTP status.
        body: JSON, as the route would have sent it.
        ignored: names of the request's fields that were ignored.
    """

    status: int
    body: bytes
    ignored: list[str]


_Reply = Callable[[bytes], Awaitable[tuple[msgspec.Struct, list[str]]]]


class Endpoints:
    """The endpoints that batch jobs can use on this server.

    Args:
        answering: services whose engine client sends deferrable requests.
        strict: whether to reject request fields that would be ignored.
    """

    def __init__(self, answering: Answering, *, strict: bool) -> None:
        self._answering = answering
        self._strict = strict
        self._replies: Mapping[str, _Reply] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embedding,
            "/v1/responses": self._response,
        }

    @property
    def model(self) -> str:
        """Served name of the only model here."""
        return self._answering.generator.served_name

    def is_named(self, model: str) -> bool:
        """Return whether requests may use this name for the model."""
        return self._answering.generator.is_named(model)

    def adapter_of(self, model: str) -> tuple[str, str] | None:
        """Return the adapter that a model name means, and the hash of its files; None: no adapter."""
        names = self._answering.generator.names
        adapter = names.adapter_of(model)
        return (adapter, names.digest(adapter) or "") if adapter else None

    @property
    def failure(self) -> str | None:
        """The reason why no more requests can be answered, or None."""
        return self._answering.generator.client.failure

    def check(self, path: str) -> None:
        """Raise RequestError if jobs cannot use this endpoint on this server."""
        if path not in TASKS:
            raise RequestError(
                f"endpoint is {path[:200]!r}; this server runs batches for {SUPPORTED}", param="endpoint"
            )
        needed, task = TASKS[path], self._answering.generator.info.task
        if needed != task:
            does = {"embed": "embeds", "generate": "generates", "classify": "classifies"}
            raise RequestError(
                f"endpoint is {path!r}; this server {does[task]}: model {self.model!r} cannot {needed}",
                param="endpoint",
                code="unsupported_operation",
            )

    def reason_against(self, path: str, model: str | None, adapters: Mapping[str, str]) -> str | None:
        """Return why the lines of an accepted job cannot run here now, or None if they can.

        Args:
            model: the model that the job was accepted for; None: the job may use any model.
            adapters: see `reason_against_adapters`.
        """
        if self.failure is not None:
            return self.failure
        if model not in (None, self.model):
            return f"it is for model {model!r}, and this server has {self.model!r}"
        try:
            self.check(path)
        except RequestError as error:
            return str(error)
        return self.reason_against_adapters(adapters)

    async def find_adapters(self, adapters: Iterable[str], tenant: str) -> None:
        """Load the adapters that are not loaded and can be found. `reason_against_adapters` names the others."""
        for name in adapters:
            with contextlib.suppress(LLMFWError):
                await self._answering.generator.names.find(name, tenant)

    def reason_against_adapters(self, adapters: Mapping[str, str]) -> str | None:
        """Return why lines must not use the adapters that are loaded now, or None if they may.

        Args:
            adapters: adapter name → hash of its files at the time the job was accepted.
        """
        for name, digest in adapters.items():
            loaded = self._answering.generator.names.digest(name)
            if loaded is None:
                return f"it needs the adapter {name!r}, which is not loaded"
            if loaded != digest:
                return f"the files of the adapter {name!r} have changed since it started; load the earlier files again"
        return None

    async def answer(self, path: str, body: bytes) -> Answer:
        """Answer a request body, possibly with an error. Cancelling the call aborts its engine requests.

        Args:
            path: an endpoint that `check` accepts.

        Raises:
            CrashingRequestError: the engine crashed each time it ran this request.
            EngineDeadError: this server cannot answer any more; another server may.
            StorageError: the answer could not be stored; a retry may succeed.
        """
        try:
            reply, ignored = await self._patiently(path, body)
        except (CrashingRequestError, EngineDeadError, StorageError):
            raise
        except Exception as error:
            if self.failure is not None:  # the error is a cause or a result of the engine's death
                raise EngineDeadError(self.failure) from error
            log_unexpected(error, f"a batch line of {path}")
            return Answer(status_of(error), msgspec.json.encode(body_of(error)), [])
        return Answer(200, msgspec.json.encode(reply), ignored)

    async def _patiently(self, path: str, body: bytes) -> tuple[msgspec.Struct, list[str]]:
        while True:
            try:
                return await self._replies[path](body)
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_s)

    async def _chat(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_generation(raw, self._answering.chat.body_type)
        report_ignored(ignored, self._strict)
        service = self._answering.chat
        return await service.reply(await service.start(body)), ignored

    async def _completion(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_generation(raw, self._answering.completions.body_type)
        report_ignored(ignored, self._strict)
        service = self._answering.completions
        return await service.reply(await service.start(body)), ignored

    async def _embedding(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_checked(raw, EmbeddingRequest)
        report_ignored(ignored, self._strict)
        return await self._answering.embeddings.reply(body), ignored

    async def _response(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_request(raw, self._answering.responses.body_type)
        report_ignored(ignored, self._strict)
        service = self._answering.responses
        return await service.reply(await service.prepare(body)), ignored
