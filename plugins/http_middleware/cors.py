"""The middleware `cors`: adds the headers that let web pages of other sites read replies in browsers.

The middleware grants no access by itself: the server still checks keys, `--allow-host` and `--allow-origin`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec

from llmfw.core import (
    ASGIApplication,
    ASGIMessage,
    ASGIReceive,
    ASGIScope,
    ASGISend,
    ConfigError,
    HTTPMiddleware,
)

ANY = "*"
_HEADER_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_MAX_HEADER_NAMES = 2048  # bytes

Header = tuple[bytes, bytes]


class Cors(HTTPMiddleware):
    """Answers preflight requests, and names the allowed origin in replies.

    Credentials of the browser, such as cookies, are never allowed: clients send keys in a header.
    """

    before_authentication: ClassVar[bool] = True  # preflight requests have no key
    skips_events: ClassVar[bool] = True

    class Options(HTTPMiddleware.Options, frozen=True):
        """
        Attributes:
            origins: origins whose pages may read replies, such as "https://app.example.com"; "*" alone is any.
            methods: methods that pages may use.
            expose_headers: headers of replies that pages may read.
            max_age: seconds for which browsers may keep the answer to a preflight request.
        """

        origins: tuple[str, ...] = ()
        methods: tuple[str, ...] = ("GET", "HEAD", "POST", "PUT", "DELETE")
        expose_headers: tuple[str, ...] = (
            "x-request-id", "retry-after", "llmfw-ignored-params",
            *(f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
        )  # fmt: skip
        max_age: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 600

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._allows_any = options.origins == (ANY,)
        self._origins = frozenset(() if self._allows_any else map(_checked_origin, options.origins))
        if not options.origins:
            raise ConfigError(
                "cors allows no origin; give -o 'middleware.cors.origins=[\"https://app.example.com\"]'"
            )
        exposed = _joined("expose_headers", options.expose_headers)
        self._on_reply: list[Header] = [(b"access-control-expose-headers", exposed)] if exposed else []
        self._on_preflight: list[Header] = [
            (b"access-control-allow-methods", _joined("methods", options.methods)),
            (b"access-control-max-age", str(options.max_age).encode()),
        ]

    async def handle(
        self, app: ASGIApplication, scope: ASGIScope, receive: ASGIReceive, send: ASGISend
    ) -> None:
        found = [value for name, value in scope["headers"] if name == b"origin"]
        origin = found[0] if len(found) == 1 and self._is_allowed(found[0]) else None
        if origin is not None and _is_preflight(scope):
            await self._answer(origin, scope, send)
            return
        added = [*self._of(origin), *self._on_reply] if origin is not None else [(b"vary", b"origin")]

        # A plain function, not a coroutine, because each event of a stream passes through it.
        def send_with_headers(message: ASGIMessage) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*_without_cors(message.get("headers", ())), *added]
            return send(message)

        await app(scope, receive, send_with_headers)

    def _is_allowed(self, origin: bytes) -> bool:
        return self._allows_any or origin.decode("latin-1").lower() in self._origins

    def _of(self, origin: bytes) -> list[Header]:
        """Return the headers that name an allowed origin."""
        if self._allows_any:
            return [(b"access-control-allow-origin", b"*")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]

    async def _answer(self, origin: bytes, scope: ASGIScope, send: ASGISend) -> None:
        """Answer a preflight request of an allowed origin."""
        headers = [*self._of(origin), *self._on_preflight]
        asked = _header(scope, b"access-control-request-headers")
        if asked and len(asked) <= _MAX_HEADER_NAMES and _HEADER_NAMES.fullmatch(asked):
            headers.append((b"access-control-allow-headers", asked))
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _is_preflight(scope: ASGIScope) -> bool:
    return scope["method"] == "OPTIONS" and bool(_header(scope, b"access-control-request-method"))


def _header(scope: ASGIScope, name: bytes) -> bytes:
    return next((value for given, value in scope["headers"] if given == name), b"")


def _without_cors(headers: Sequence[Header]) -> list[Header]:
    """Return the headers of a reply without those that this middleware sets."""
    return [each for each in headers if not each[0].lower().startswith(b"access-control-")]


def _joined(option: str, names: Sequence[str]) -> bytes:
    text = ", ".join(names)
    if names and not _HEADER_NAMES.fullmatch(text.encode("ascii", "replace")):
        raise ConfigError(f"middleware.cors.{option} is {text!r}; it must be names without spaces")
    return text.encode()


def _checked_origin(origin: str) -> str:
    """Return an origin in lower case.

    Raises:
        ConfigError: the text is not an origin.
    """
    try:
        parts = urlsplit(origin)
        is_origin = bool(parts.hostname) and parts.port != 0 and origin == f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        is_origin = False
    if not is_origin or "@" in origin or "*" in origin or not parts.scheme or not origin.isascii():
        raise ConfigError(
            f"middleware.cors.origins has {origin!r}, which is not an origin; write it as browsers do, "
            'such as "https://app.example.com", or "*" alone for any'
        )
    return origin.lower()
