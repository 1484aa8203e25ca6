"""Interface by which a plugin's route runs requests on the server that it belongs to.

A route in the form of another API converts its request to the body of an OpenAI route, and converts the reply back. It
needs no connection to its own server for that. Importing this module imports no web framework.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT")


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model of a server, as a route may describe it.

    Attributes:
        name: name of the model for clients.
        created: time when the server started, in seconds since the epoch.
        template: source of the chat template; "" if it has none.
        capabilities: what the model can do: "completion" or "embedding"; "tools", "thinking", and "insert" (fill in text
            before a suffix).
    """

    name: str
    created: int
    template: str
    capabilities: frozenset[str]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as the client of a route sees it.

    Attributes:
        status: HTTP status.
        message: one line; leaves out details of unexpected exceptions, which are logged.
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

    A handler with an argument `state: State` finds it in `state["api"]`. `request` is the Litestar request of the handler.
    """

    @property
    @abstractmethod
    def model(self) -> ServedModel:
        """The server's model."""

    @abstractmethod
    async def read(self, request: Any, kind: type[BodyT]) -> tuple[BodyT, list[str]]:
        """Read the JSON body of a request, whatever its content type says; return it with the names of unknown fields.

        Unknown fields that are null are left out. A field that is a Struct itself is searched, too: `options.num_ctx`.

        Raises:
            RequestError: the body is no JSON object of this kind; names the field.
            OverloadedError: the server has no memory for the body now.
        """

    @abstractmethod
    def report(self, ignored: Sequence[str]) -> dict[str, str]:
        """Return the header that reports fields without effect; {} if there are none.

        Raises:
            RequestError: there are some, and the server runs with `--strict-params`.
        """

    @abstractmethod
    async def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request as the route at `path` does, and return its decoded reply.

        A completion without `max_tokens` has no limit but the context. Cancelling the call aborts the request.

        Args:
            path: "/v1/chat/completions", "/v1/completions" or "/v1/embeddings".
            body: body of the request, without `stream`.

        Raises:
            RequestError: a field is wrong, or would have no effect; names the field.
            LLMFWError: the request failed.
        """

    @abstractmethod
    def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the decoded chunks that the route at `path` streams, with a last one that has `usage`.

        Yields None while the request waits. Closing the iterator aborts the request.

        Args:
            path, body: as in `call`, but not "/v1/embeddings".

        Raises:
            LLMFWError: as in `call`, at any chunk.
        """

    @abstractmethod
    async def while_connected(self, request: Any, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Return the result of a coroutine; cancel it if the client disconnects before. The body must have been read."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """Return an exception as the client sees it; log the exception if the client did not cause it."""
