"""The interface of an observer: it receives an event when a request of the server starts, answers or ends.

An observer runs in the API process, in its own thread. Requests never wait for an observer. It gets the
events of up to 0.1 s in one call. If it cannot keep up, events are dropped and counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from prometheus_client import Metric


class RequestStarted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request was sent to the engine. Each choice and each prompt of a client's request has its own event.

    Attributes:
        id: id of the request: the id of the reply, and the index of the choice, as in "chatcmpl-…-0".
        at: time, in seconds since the epoch.
        task: "generate" or "embed".
        tenant: API key's name, or the user that the client names; "" if it has neither.
        tenant_is_key: whether the tenant is an API key.
        priority: priority of the request.
        deferrable: whether the request runs only in the capacity that others leave, as lines of batches do.
        prompt_tokens: number of tokens of the prompt, or of all prompts of an embedding.
        max_tokens: limit on the output's tokens; None: only the context limits it.
        fields: values of request fields of plugins, by name (see `RequestField`).
        model: name under which the model is served.
        adapter: name of the adapter that the request uses; "": none.
        traceparent: W3C trace context that the client sent in the header `traceparent`; "" if it sent none or
            a malformed one.
    """

    id: str
    at: float
    task: str
    tenant: str
    tenant_is_key: bool
    priority: int
    deferrable: bool
    prompt_tokens: int
    max_tokens: int | None
    fields: dict[str, Any] = {}
    model: str = ""
    traceparent: str = ""
    adapter: str = ""


class RequestFirstToken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first tokens of a request arrived. After a restart of the engine, this event may come again.

    Attributes:
        id: id of the request.
        at: time, in seconds since the epoch.
        queued_s: seconds from the request's arrival in the engine until the scheduler admitted it.
        cached_tokens: number of the prompt's tokens that came from the prefix cache.
        started: the request's first event. (None only in tests that do not set it.)
        first_token_s: seconds from the start until now, on a monotonic clock.
    """

    id: str
    at: float
    queued_s: float
    cached_tokens: int
    started: RequestStarted | None = None
    first_token_s: float = 0.0


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request ended. Each `RequestStarted` is followed by exactly one `RequestEnded`.

    Attributes:
        started: the request's first event.
        at: time, in seconds since the epoch.
        finish: "stop" (a stop token, a stop string, or the end of an embedding), "length", "error", or
            "abort" (the client left, or needed no more tokens).
        error_kind: name of the exception's class, such as "OverloadedError", if `finish` is "error"; else "".
        error: message of the exception, if `finish` is "error"; else "". May quote the client's request.
        output_tokens: number of generated tokens that the server received.
        cached_tokens, queued_s: as in `RequestFirstToken`; 0 if no token came.
        first_token_s: seconds from the start to the first token; None if no token came.
        duration_s: seconds from the start to the end, on a monotonic clock.
        restarts: number of times that the request started over because the engine had died.
    """

    started: RequestStarted
    at: float
    finish: str
    error_kind: str
    error: str
    output_tokens: int
    cached_tokens: int
    queued_s: float
    first_token_s: float | None
    duration_s: float
    restarts: int


RequestEvent = RequestStarted | RequestFirstToken | RequestEnded
"""The events that an observer receives."""


class RequestObserver(ABC):
    """Observes the requests of `llmfw serve` and `llmfw batch run`. Chosen by `--observers NAME,NAME`.

    The server builds one object of each chosen class when it starts, before the model is loaded.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o observer.NAME.key=value`. An observer with options overrides
        this."""

    def __init__(self, options: Options) -> None:
        """Prepare the observer, for example open a file. Raise ConfigError if it cannot work."""
        self.options = options

    @abstractmethod
    def observe(self, events: Sequence[RequestEvent]) -> None:
        """Process events.

        Called in the observer's thread, never twice at once; it may block, but long computations in Python
        slow the server down. The events of one request come in order. The observer may keep the events, but
        not the list.

        If it raises, the observer loses these events, and the log gives the reason. llmfw calls it again
        after a pause of 1 s. The pause doubles with each further failure in a row, up to 60 s.
        """

    def metrics(self) -> Iterable[Metric]:
        """Return metric families of prometheus_client for `GET /metrics`, for example `registry.collect()`.

        Called in the observer's thread for each scrape, after all events so far were passed to `observe`. The
        server waits 2 s for the result. It leaves out families with a name that llmfw or an earlier observer
        uses.
        """
        return ()

    def close(self) -> None:  # noqa: B027 - most observers hold nothing
        """Free what the observer holds. Called in its thread after the last `observe`, when the server ends.

        The server waits 5 s for it.
        """
