"""The interface through which a plugin's HTTP route runs requests on the server.

For example, a route of another API converts its request to the body of an OpenAI route, calls that route, and
converts the reply back. The call needs no network connection. Importing this module imports no web framework.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from llmfw.core.base.engine_info import EngineInfo

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT")


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model of a server, as a route may describe it.

    Attributes:
        name: name of the model for clients.
        created: time when the server started, in seconds since the epoch.
        template: source of the chat template; "" if it has none.
        capabilities: abilities of the model: "completion", "embedding" or "classification", and any of
            "tools", "thinking" and "insert" (filling in text before a suffix).
        adapters: names of the model's adapters. A request may name an adapter in place of the model.
        info: description of the model's engine; None: unknown.
    """

    name: str
    created: int
    template: str
    capabilities: frozenset[str]
    adapters: tuple[str, ...] = ()
    info: EngineInfo | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as the client of a route sees it.

    Attributes:
        status: HTTP status.
        message: message of one line. Details of unexpected exceptions are only in the log.
        param: field of the request at fault, or None.
        code: OpenAI's code of the error, or None.
        headers: headers that say whether and when to retry.
    """

    status: int
    message: str
    param: str | None
    code: str | None
    headers: Mapping[str, str]


class ServerAPI(ABC):
    """Runs requests of a plugin's routes, with the limits, checks and errors of the server's own routes.

    A handler that declares the argument `state: State` finds this object in `state["api"]`. The methods'
    argument `request` is the handler's Litestar request.
    """

    @property
    @abstractmethod
    def model(self) -> ServedModel:
        """The server's model, or its first one."""

    @property
    def models(self) -> Sequence[ServedModel]:
        """All models of the server, the first one first."""
        return (self.model,)

    def model_named(self, model: str | None) -> ServedModel:
        """Return the model that a request names; None: the server's first model.

        Raises:
            ModelNotFoundError: the server does not serve this model.
        """
        return self.model

    @abstractmethod
    async def read(self, request: Any, kind: type[BodyT]) -> tuple[BodyT, list[str]]:
        """Read the JSON body of a request; return the body and the names of its unknown fields.

        Ignores the content type. Does not report unknown fields that are null. Reports unknown fields of
        nested Structs, too, as in `options.num_ctx`.

        Raises:
            RequestError: the body is not a JSON object of this kind; the error names the field.
            OverloadedError: the server has no memory for the body now.
        """

    @abstractmethod
    async def read_object(self, request: Any) -> dict[str, msgspec.Raw]:
        """Read the JSON body of a request; return its members, not decoded. Ignores the content type.

        Raises:
            RequestError: the body is not a JSON object.
            OverloadedError: the server has no memory for the body now.
        """

    @abstractmethod
    async def forward(self, request: Any, path: str, body: Mapping[str, Any]) -> Any:
        """Return the response that the route at `path` gives to a body. A handler can return it as its own.

        Unlike the result of `call`, the response may be a stream. Fields without effect are reported or
        refused, as the route at `path` does.

        Args:
            request: the handler's request, whose body has been read.
            path: as in `call`.
            body: members of the body; `msgspec.Raw` values are inserted unchanged.

        Raises:
            LLMFWError: the route refuses the request.
        """

    @abstractmethod
    def report(self, ignored: Sequence[str]) -> dict[str, str]:
        """Return a header that reports the ignored fields; {} if there are none.

        Raises:
            RequestError: a field is ignored, and the server runs with `--strict-params`.
        """

    @abstractmethod
    async def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request as the route at `path` does, and return its decoded reply.

        A completion without `max_tokens` is limited only by the context. Cancelling the call aborts the
        request.

        Args:
            path: "/v1/chat/completions", "/v1/completions" or "/v1/embeddings".
            body: body of the request, without `stream`.

        Raises:
            RequestError: a field is wrong, or would have no effect; the error names the field.
            LLMFWError: the request failed.
        """

    @abstractmethod
    def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the decoded chunks that the route at `path` streams. The last chunk has `usage`.

        Yields None while the request waits. Closing the iterator aborts the request.

        Args:
            path, body: as in `call`, but not "/v1/embeddings".

        Raises:
            LLMFWError: as in `call`, at any chunk.
        """

    @abstractmethod
    async def while_connected(self, request: Any, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine and return its result; cancel the coroutine if the client disconnects.

        The body of `request` must have been read before.
        """

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """Convert an exception to the client's view of it. Logs the exception unless the client caused it."""
