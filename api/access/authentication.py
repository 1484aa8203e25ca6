"""Checks API keys. This is plain ASGI around the application, so that it covers plugins' routes as well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from llmfw.api.schemas.anthropic import AnthropicError, AnthropicErrorDetail
from llmfw.api.schemas.errors import ErrorBody, ErrorDetail
from llmfw.api.text.terms import key_name, key_scopes, serving_client
from llmfw.core.base.errors import LLMFWError, RequestError
from llmfw.core.interfaces.authenticator import Refusal

from .authenticators import Authenticators
from .error_reply import send_error
from .keyring import Keyring
from .rate_headers import with_rate_headers
from .tenant_loads import TenantLoads

NOT_ACCEPTED = (
    "neither an API key nor an authenticator of this server accepts these credentials; send others in the header "
    "'Authorization: Bearer CREDENTIALS'"
)
TWO_KEYS = "the headers 'authorization' and 'x-api-key' have different keys; send one of them"


class ApiKey:
    """ASGI middleware that refuses connections without a valid key, and sets the client's tenant and scopes.

    Clients send a key as `Authorization: Bearer KEY`, or, with Anthropic's SDKs, as `x-api-key: KEY`. A
    request with two different keys is refused, because a proxy might read a different key than this server.

    Args:
        keys: the accepted keys.
        public: paths that need no key.
        others: authenticators of plugins, which are asked about requests without a valid key.
        loads: loads of the tenants; receive the limits that authenticators set. Replies to a tenant with
            rates have headers with the amounts left.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keyring,
        public: Collection[str] = (),
        others: Authenticators | None = None,
        loads: TenantLoads | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._public = public
        self._others = others
        self._loads = loads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        kind: str = scope["type"]
        if kind == "lifespan" or scope["path"] in self._public:
            await self._app(scope, receive, send)
            return
        given = _given_keys(scope)
        if len(set(given)) > 1:
            await _send_error(send, kind, scope["path"], RequestError(TWO_KEYS))
            return
        known = next((found for found in map(self._keys.client_of, given) if found is not None), None)
        refusal = ""
        if known is None and self._others is not None:
            try:
                answer = await self._others.ask(scope["headers"])
            except LLMFWError as error:
                await _send_error(send, kind, scope["path"], error)
                return
            if isinstance(answer, Refusal):
                refusal = answer.message
            else:
                known = answer
                if known is not None and self._loads is not None:
                    self._loads.note(known)
        if known is not None:
            load = self._loads.of(known.tenant) if self._loads is not None and kind == "http" else None
            if load is not None:
                send = with_rate_headers(send, load, scope["path"])
            with serving_client(known.tenant, known.scopes):
                await self._app(scope, receive, send)
        elif kind == "http":
            if not refusal and self._others:
                refusal = NOT_ACCEPTED if given else _needed(self._others)
            await _send_401(send, scope["path"], bool(given), refusal)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "invalid API key"})


class AdminOnly:
    """ASGI middleware inside `ApiKey` that refuses connections of tenants other than the administrator."""

    def __init__(self, app: ASGIApp, keys: Keyring) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        kind: str = scope["type"]
        if self._keys.is_admin(key_name.get(), key_scopes.get()):
            await self._app(scope, receive, send)
        elif kind == "http":
            await _send_403(send, self._keys.has_admin)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "this path needs the admin key"})


def _given_keys(scope: Scope) -> list[bytes]:
    """Return the keys in a request's headers.

    Returns at most one key per header name, so that a request cannot try many keys. Ignores empty keys, and
    Authorization headers with a scheme other than Bearer.
    """
    keys: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            keys.setdefault(name, value.strip())
        elif name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                keys.setdefault(name, key.strip())
    return [key for key in keys.values() if key]


def _body_401(path: str, message: str) -> AnthropicError | ErrorBody:
    """Return the body of a 401 reply, in the format of the API that the path belongs to."""
    if path.startswith("/v1/messages"):
        return AnthropicError(AnthropicErrorDetail("authentication_error", message))
    return ErrorBody(ErrorDetail(message=message, type="invalid_request_error", code="invalid_api_key"))


def _needed(others: Authenticators) -> str:
    """Return the refusal of a request without credentials."""
    names = " or ".join(repr(name) for name in others.header_names())
    return f"credentials are needed; send them in the header {names}, as the server's operator says"


async def _send_error(send: Send, kind: str, path: str, error: Exception) -> None:
    if kind == "http":
        await send_error(send, path, error)
    else:
        await send({"type": "websocket.close", "code": 1011, "reason": "authentication failed"})


async def _send_401(send: Send, path: str, given: bool, refusal: str = "") -> None:
    problem = "the API key is wrong" if given else "an API key is needed"
    message = refusal or f"{problem}; send the server's key in the header 'Authorization: Bearer KEY'"
    await _send(send, 401, _body_401(path, message), (b"www-authenticate", b"Bearer"))


async def _send_403(send: Send, has_admin: bool) -> None:
    advice = "send that" if has_admin else "the server has none: start it with --admin-api-key-file FILE"
    message = f"this path needs the admin key; {advice}"
    detail = ErrorDetail(message=message, type="invalid_request_error", code="admin_forbidden")
    await _send(send, 403, ErrorBody(detail))


async def _send(send: Send, status: int, error: Any, *headers: tuple[bytes, bytes]) -> None:
    body = msgspec.json.encode(error)
    length = str(len(body)).encode()
    all_headers = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
