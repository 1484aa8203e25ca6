"""Reports the requests of an engine client as events for observers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any, Self

from llmfw.core.base.described import message_of
from llmfw.core.base.request import EmbedRequest, FinishReason, Request, TokenEvent
from llmfw.core.interfaces.declared_fields import DeclaredFields
from llmfw.core.interfaces.observer import RequestEnded, RequestEvent, RequestFirstToken, RequestStarted

from .client import EngineClient
from .forwarding import ForwardingEngineClient
from .trace_context import traceparent

Report = Callable[[RequestEvent], None]
"""Takes an event; returns at once."""


class ObservedEngineClient(ForwardingEngineClient):
    """Passes requests to another client, and reports what happens to them.

    Args:
        client: the other client.
        report: called on the event loop with each event.
        model: name under which the model is served.
        declared: names of the request fields that observers may ask for; None: any.
    """

    def __init__(
        self,
        client: EngineClient,
        report: Report,
        model: str = "",
        declared: Collection[str] | None = None,
    ) -> None:
        super().__init__(client)
        self._report = report
        self._model = model
        self._declared = declared
        self._running: dict[str, _Watch] = {}

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._client.watched(request, self._watch(request))

    def note_end(self, request_id: str, reason: FinishReason) -> None:
        if (watch := self._running.get(request_id)) is not None:
            watch.finish = reason
        super().note_end(request_id, reason)

    async def embed(self, request: EmbedRequest) -> bytes:
        with self._watch(request) as watch:
            vectors = await self._client.embed(request)
            watch.finish = FinishReason.STOP
            return vectors

    def _watch(self, request: Request | EmbedRequest) -> _Watch:
        started = started_event(request, self._model, traceparent.get(), self._declared)
        return _Watch(started, self._report, self._running)


class _Watch:
    """The state of one request so far. Implements `RequestWatch`.

    Args:
        started: the request's first event.
        report: called with each event of the request.
        running: watches of the running requests, by id. Contains this watch from its start to its end.

    Attributes:
        finish: why the request ended, as soon as that is known.
        num_tokens: number of tokens so far.
    """

    __slots__ = (
        "_cached_tokens",
        "_error",
        "_first_token_s",
        "_queued_s",
        "_report",
        "_restarts",
        "_running",
        "_started",
        "_started_s",
        "finish",
        "num_tokens",
    )

    def __init__(self, started: RequestStarted, report: Report, running: dict[str, _Watch]) -> None:
        self._report = report
        self._running = running
        self._started = started
        self._started_s = time.perf_counter()
        self._first_token_s: float | None = None
        self._cached_tokens, self._queued_s = 0, 0.0
        self.num_tokens = self._restarts = 0
        self.finish = FinishReason.ABORT
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._running.setdefault(self._started.id, self)  # a repeated id is refused later
        self._report(self._started)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._running.get(self._started.id) is self:
            del self._running[self._started.id]
        self._error = error if isinstance(error, Exception) else None
        self._report(self._end())

    def note(self, event: TokenEvent) -> None:
        """Take an event of the request into account."""
        if not event.token_ids:
            self._note_other(event)
            return
        if not self.num_tokens:
            self._note_first(event)
        self.num_tokens += len(event.token_ids)
        if event.finish_reason is not None:
            self.finish = event.finish_reason

    def _note_other(self, event: TokenEvent) -> None:
        if event.restarted:
            self._restarts += 1
            self.num_tokens = 0
        elif event.finish_reason is not None:
            self.finish = event.finish_reason

    def _note_first(self, event: TokenEvent) -> None:
        self._first_token_s = time.perf_counter() - self._started_s
        self._cached_tokens, self._queued_s = event.cached_tokens, event.queued_us / 1e6
        first = RequestFirstToken(
            id=self._started.id,
            at=time.time(),
            queued_s=self._queued_s,
            cached_tokens=self._cached_tokens,
            started=self._started,
            first_token_s=self._first_token_s,
        )
        self._report(first)

    def _end(self) -> RequestEnded:
        error = self._error
        return RequestEnded(
            started=self._started,
            at=time.time(),
            finish=self.finish.value if error is None else FinishReason.ERROR.value,
            error_kind="" if error is None else type(error).__name__,
            error="" if error is None else message_of(error),
            output_tokens=self.num_tokens,
            cached_tokens=self._cached_tokens,
            queued_s=self._queued_s,
            first_token_s=self._first_token_s,
            duration_s=time.perf_counter() - self._started_s,
            restarts=self._restarts,
        )


def started_event(
    request: Request | EmbedRequest,
    model: str = "",
    parent: str = "",
    declared: Collection[str] | None = None,
) -> RequestStarted:
    """Return the first event of a request.

    Args:
        model: name under which the model is served.
        parent: trace context that the client sent (`RequestStarted.traceparent`).
        declared: as in `ObservedEngineClient`.
    """
    if isinstance(request, EmbedRequest):
        task, priority, max_tokens, fields = "embed", 0, None, dict[str, Any]()
        prompt_tokens = sum(map(len, request.prompts))
    else:
        task, priority, max_tokens = "generate", request.priority, request.sampling.max_tokens
        prompt_tokens, fields = len(request.prompt), request.fields
    return RequestStarted(
        id=request.id,
        at=time.time(),
        task=task,
        tenant=request.tenant,
        tenant_is_key=request.tenant_is_key,
        priority=priority,
        deferrable=request.deferrable,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        fields=fields if declared is None else DeclaredFields(fields, declared),
        model=model,
        traceparent=parent,
        adapter="" if isinstance(request, EmbedRequest) else request.adapter,
    )
