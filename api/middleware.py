"""What holds for every request, whatever its route: a request id, and the API key.

Plain ASGI around the whole application, so that nothing, no unknown path and no plugin's route, is left out.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Awaitable, Collection, Sequence

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from .schemas.anthropic import AnthropicError, AnthropicErrorDetail
from .schemas.errors import ErrorBody, ErrorDetail
from .terms import key_name

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")


class RequestId:
    """Puts `x-request-id` on every reply: the client's own if it is sane, else a new one.

    Anthropic's clients look for it under `request-id`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}".encode()

        # Not a coroutine of its own: it stands in the way of each event of a stream.
        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id),
                    (b"request-id", request_id),
                ]
            return send(message)

        await self._app(scope, receive, send_with_id)


class ApiKey:
    """Refuses every connection without a key, but for the public paths; notes the key's name in `terms.key_name`.

    Args:
        keys: (name, key), as in `Authorization: Bearer <key>`, or `x-api-key: <key>` as Anthropic's clients send it.
        public: paths for everyone.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[tuple[str, str]], public: Collection[str]) -> None:
        self._app = app
        self._keys = [(name, key.encode()) for name, key in keys]
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        kind: str = scope["type"]
        if kind == "lifespan" or scope["path"] in self._public:
            await self._app(scope, receive, send)
        elif names := self._names(scope):
            key_name.set(names[0])  # each connection is handled in a context of its own
            await self._app(scope, receive, send)
        elif kind == "http":
            await _send_401(send, scope["path"], bool(_given_keys(scope)))
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "invalid API key"})

    def _names(self, scope: Scope) -> list[str]:
        """Return the names of the keys that a request has. Each is compared with each: the time tells nothing."""
        return [
            name
            for given in _given_keys(scope)
            for name, key in self._keys
            if hmac.compare_digest(given, key)
        ]


def _given_keys(scope: Scope) -> list[bytes]:
    """Return the keys that a request has; an authorization of another scheme is none."""
    keys = []
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            keys.append(value.strip())
        elif name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                keys.append(key.strip())
    return keys


def _body_401(path: str, message: str) -> AnthropicError | ErrorBody:
    """Return the error's body in the form of the API that a path belongs to."""
    if path.startswith("/v1/messages"):
        return AnthropicError(AnthropicErrorDetail("authentication_error", message))
    return ErrorBody(ErrorDetail(message=message, type="invalid_request_error", code="invalid_api_key"))


async def _send_401(send: Send, path: str, given: bool) -> None:
    problem = "the API key is wrong" if given else "an API key is needed"
    message = f"{problem}; send the server's key in the header 'Authorization: Bearer KEY'"
    body = msgspec.json.encode(_body_401(path, message))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
