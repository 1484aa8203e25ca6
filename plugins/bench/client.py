"""A streaming client for OpenAI-compatible servers.

While a reply streams, the client only records the received bytes and their times; it parses them once the
reply has ended. Does not depend on workloads or prompts.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from llmfw.core.base.server_url import server_url

from .errors import BenchError
from .reply import Reply, error_message, parse_stream
from .transport import Transport, TransportError

UNAUTHORIZED = 401

_KEY_HINT = "give the key by --api-key KEY, or by OPENAI_API_KEY in the environment"
_REACH_HINT = "is it running, and is --url right?"


class CompletionClient:
    """Sends streaming requests to one server.

    Args:
        base_url: URL of the server, with or without `http://` and `/v1`.
        api: "completions" or "chat".
        model: name of the model to request; "": call `find_model` before any request.
        api_key: API key, sent as a bearer token.
        extra: fields to merge into each request's body.
        timeout: seconds without any byte after which a request fails.

    Attributes:
        exact_length: whether requests contain `ignore_eos` and `min_tokens`; see `probe`.

    Raises:
        BenchError: `base_url` is not a URL.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api: str = "completions",
        model: str = "",
        api_key: str | None = None,
        extra: dict[str, Any] | None = None,
        timeout: float = 600.0,
    ) -> None:
        try:
            self.base_url = server_url(base_url)
        except ValueError as error:
            raise BenchError(f"--url {error}") from error
        self.api = api
        self.model = model
        self.exact_length = True
        self._extra = extra or {}
        self._path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._transport = Transport(self.base_url, headers, timeout)

    async def find_model(self) -> None:
        """Set `model` to the first model that the server lists.

        Raises:
            BenchError: the server cannot be reached, returns an error, or lists no model.
        """
        url = f"{self.base_url}/v1/models"
        try:
            answer = await self._transport.exchange("GET", "/v1/models")
        except TransportError as error:
            raise BenchError(f"{url} cannot be reached: {error}; {_REACH_HINT}") from error
        if answer.status != 200:
            reason = error_message(answer.body)
            hint = _KEY_HINT if answer.status == UNAUTHORIZED else "name the model with --model"
            raise BenchError(f"{url} answers {answer.status}: {reason}; {hint}")
        try:
            self.model = str(msgspec.json.decode(answer.body)["data"][0]["id"])
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise BenchError(f"{url} lists no model; name it with --model") from error

    async def probe(self, content: dict[str, Any]) -> Reply:
        """Send a request for one token, to find out whether the server accepts `ignore_eos` and `min_tokens`.

        If the server rejects these fields, sets `exact_length` to False, so that later requests omit them.

        Args:
            content: as for `complete`.

        Raises:
            BenchError: the server cannot be reached, or the request fails.
        """
        reply = await self.complete(content, wanted=1)
        if reply.status in (400, 422) and self.exact_length:
            self.exact_length = False
            reply = await self.complete(content, wanted=1)
        if reply.status is None:
            raise BenchError(f"{self.base_url} cannot be reached: {reply.error}; {_REACH_HINT}")
        if reply.error is not None:
            hint = f"; {_KEY_HINT}" if reply.status == UNAUTHORIZED else ""
            raise BenchError(f"{self.base_url}{self._path}: {reply.error}{hint}")
        return reply

    async def complete(self, content: dict[str, Any], wanted: int, turn: int = 0) -> Reply:
        """Send one request and read its stream to the end.

        Errors do not raise; they are in the reply's `error`.

        Args:
            content: `{"prompt": …}` or `{"messages": …}`.
            wanted: number of output tokens to ask for.
            turn: index of the turn in its conversation, for the reply.
        """
        reply = Reply(wanted, turn)
        body = msgspec.json.encode(self._body(content, wanted))
        reply.started = time.perf_counter()
        try:
            answer = await self._transport.exchange("POST", self._path, body)
        except TransportError as error:
            reply.ended = time.perf_counter()
            reply.error = str(error)
            return reply
        reply.ended = time.perf_counter()
        reply.status = answer.status
        if answer.status == 200:
            parse_stream(answer.reads, reply)
        else:
            reply.error = f"HTTP {answer.status}: {error_message(answer.body)}"
        return reply

    def _body(self, content: dict[str, Any], wanted: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            **content,
            "max_tokens": wanted,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.exact_length:
            body |= {"ignore_eos": True, "min_tokens": wanted}
        return body | self._extra
