"""The endpoints that batch lines may request: maps each path to the method that answers a request body.

The methods use the same services and checks as the routes, but do not need a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from llmfw.api.text.by_model import ByModel
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
    """The services that handle request bodies for one model (`api.services.Answering`)."""

    generator: Generator
    chat: ChatService
    completions: CompletionService
    embeddings: EmbeddingService


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
        answering: services of each model, whose engine client sends deferrable requests.
        responses: service of responses that uses the same chats.
        strict: whether to reject request fields that would be ignored.
    """

    def __init__(self, answering: ByModel[Answering], responses: ResponseService, *, strict: bool) -> None:
        self._answering = answering
        self._responses = responses
        self._strict = strict
        self._replies: Mapping[str, _Reply] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embedding,
            "/v1/responses": self._response,
        }

    @property
    def served_names(self) -> Sequence[str]:
        """Served names of the models here."""
        return self._answering.served_names

    def is_named(self, model: str) -> bool:
        """Return whether requests may use this name for a model."""
        return model in self._answering

    def served_name(self, model: str | None) -> str:
        """Return the served name of the model that a request names; None: of the first model."""
        return self._answering.names_of(model).served_name

    def adapter_of(self, model: str) -> tuple[str, str] | None:
        """Return the adapter that a model name means, and the hash of its files; None: no adapter."""
        names = self._answering.names_of(model)
        adapter = names.adapter_of(model)
        return (adapter, names.digest(adapter) or "") if adapter else None

    def failure_of(self, model: str | None) -> str | None:
        """Return the reason why a model's engine can answer no more requests, or None.

        Args:
            model: the model that a job was accepted for, served here or not; None: the first model.
        """
        if model is not None and not self.is_named(model):
            return None
        return self._answering.of(model).generator.client.failure

    def check(self, path: str) -> None:
        """Raise RequestError if jobs cannot use this endpoint on this server."""
        if path not in TASKS:
            raise RequestError(
                f"endpoint is {path[:200]!r}; this server runs batches for {SUPPORTED}", param="endpoint"
            )
        reasons = [self.reason_against_model(path, name) for name in self.served_names]
        if None not in reasons:
            raise RequestError(
                f"endpoint is {path!r}; {reasons[0]}", param="endpoint", code="unsupported_operation"
            )

    def reason_against_model(self, path: str, model: str | None) -> str | None:
        """Return why lines cannot use this endpoint with a model; None if they can."""
        needed, generator = TASKS[path], self._answering.of(model).generator
        if needed == generator.info.task:
            return None
        does = {"embed": "embeds", "generate": "generates", "classify": "classifies"}
        return f"model {generator.served_name!r} {does[generator.info.task]}; it cannot {needed}"

    def reason_against(self, path: str, model: str | None, adapters: Mapping[str, str]) -> str | None:
        """Return why the lines of an accepted job cannot run here now, or None if they can.

        Args:
            model: the model that the job was accepted for; None: the first model.
            adapters: see `reason_against_adapters`.
        """
        if model is not None and model not in self.served_names:
            return f"it is for model {model!r}, and this server has {', '.join(map(repr, self.served_names))}"
        return (
            self.failure_of(model)
            or self.reason_against_model(path, model)
            or self.reason_against_adapters(model, adapters)
        )

    async def find_adapters(self, model: str | None, adapters: Iterable[str], tenant: str) -> None:
        """Load the adapters that are not loaded and can be found. `reason_against_adapters` names the others."""
        for name in adapters:
            with contextlib.suppress(LLMFWError):
                await self._answering.names_of(model).find(name, tenant)

    def reason_against_adapters(self, model: str | None, adapters: Mapping[str, str]) -> str | None:
        """Return why lines must not use the adapters that are loaded now, or None if they may.

        Args:
            model: as in `reason_against`.
            adapters: adapter name → hash of its files at the time the job was accepted.
        """
        for name, digest in adapters.items():
            loaded = self._answering.names_of(model).digest(name)
            if loaded is None:
                return f"it needs the adapter {name!r}, which is not loaded"
            if loaded != digest:
                return f"the files of the adapter {name!r} have changed since it started; load the earlier files again"
        return None

    async def answer(self, path: str, body: bytes, model: str | None = None) -> Answer:
        """Answer a request body, possibly with an error. Cancelling the call aborts its engine requests.

        Args:
            path: an endpoint that `check` accepts.
            model: the model that the job was accepted for; None: the first model.

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
            if (failure := self.failure_of(model)) is not None:
                # The error is a cause or a result of the engine's death.
                raise EngineDeadError(failure) from error
            return failed(path, error)
        return Answer(200, msgspec.json.encode(reply), ignored)

    async def _patiently(self, path: str, body: bytes) -> tuple[msgspec.Struct, list[str]]:
        while True:
            try:
                return await self._replies[path](body)
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_s)

    async def _chat(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_generation(raw, self._answering.first.chat.body_type)
        report_ignored(ignored, self._strict)
        service = self._answering.of(body.model).chat
        return await service.reply(await service.start(body)), ignored

    async def _completion(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_generation(raw, self._answering.first.completions.body_type)
        report_ignored(ignored, self._strict)
        service = self._answering.of(body.model).completions
        return await service.reply(await service.start(body)), ignored

    async def _embedding(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_checked(raw, EmbeddingRequest)
        report_ignored(ignored, self._strict)
        return await self._answering.of(body.model).embeddings.reply(body), ignored

    async def _response(self, raw: bytes) -> tuple[msgspec.Struct, list[str]]:
        body, ignored = decode_request(raw, self._responses.body_type)
        report_ignored(ignored, self._strict)
        return await self._responses.reply(await self._responses.prepare(body)), ignored


def failed(path: str, error: Exception) -> Answer:
    """Return the answer to a request body that an exception has ended. Logs exceptions that are unexpected."""
    log_unexpected(error, f"a batch line of {path}")
    return Answer(status_of(error), msgspec.json.encode(body_of(error)), [])
