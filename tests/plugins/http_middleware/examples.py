"""What `cors` and `gzip` do to requests and replies, for their conformance classes."""

from __future__ import annotations

from dataclasses import replace

from llmfw.core.testing import MiddlewareExample
from llmfw.core.testing.exchange import EVENTS, JSON

Header = tuple[bytes, bytes]
METHODS = (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE")
MAX_AGE = (b"access-control-max-age", b"600")
EXPOSED = (
    b"access-control-expose-headers",
    (
        b"x-request-id, retry-after, llmfw-ignored-params, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, "
        b"x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, "
        b"x-ratelimit-reset-tokens"
    ),
)
VARY_ORIGIN = (b"vary", b"origin")
ASKS = (b"access-control-request-method", b"POST")


def cors_examples(*, allows_any: bool) -> list[MiddlewareExample]:
    """Return examples of `cors` with the origins https://app.example.com and http://b.example, or with any."""
    found = []
    for origin in (b"https://app.example.com", b"HTTPS://App.example.com", b"http://b.example"):
        named = [(b"access-control-allow-origin", b"*" if allows_any else origin)]
        named += [] if allows_any else [VARY_ORIGIN]
        found += [_passed(origin, [*named, EXPOSED]), *_preflights(origin, [*named, METHODS, MAX_AGE])]
    for origin in (
        b"https://evil.example",
        b"null",
        b"http://app.example.com",
        b"https://app.example.com:8443",
        b"",
    ):
        allowed = [(b"access-control-allow-origin", b"*"), EXPOSED] if allows_any else [VARY_ORIGIN]
        found.append(_passed(origin, allowed))
        if not allows_any:  # a preflight of another origin is the application's to answer
            found.append(
                replace(_passed(origin, allowed), method="OPTIONS", headers=[(b"origin", origin), ASKS])
            )
    both = [(b"origin", b"https://app.example.com"), (b"origin", b"http://b.example")]
    none = MiddlewareExample(reply_headers=[JSON], expected_headers=[JSON, VARY_ORIGIN])
    asks = replace(none, method="OPTIONS", headers=[ASKS])
    return [*found, none, asks, replace(none, headers=both)]


def _passed(origin: bytes, added: list[Header]) -> MiddlewareExample:
    """A reply that has headers of CORS already, which are left out."""
    own = [(b"Access-Control-Allow-Origin", b"*"), (b"access-control-allow-credentials", b"true")]
    return MiddlewareExample(
        headers=[(b"origin", origin)], reply_headers=[JSON, *own], expected_headers=[JSON, *added]
    )


def _preflights(origin: bytes, expected: list[Header]) -> list[MiddlewareExample]:
    asked = MiddlewareExample(
        method="OPTIONS",
        headers=[(b"origin", origin), ASKS],
        expected_status=204,
        expected_headers=expected,
        is_passed_on=False,
    )
    origin_alone = _passed(origin, [each for each in expected if each not in (METHODS, MAX_AGE)] + [EXPOSED])
    found = [
        asked,
        replace(origin_alone, method="OPTIONS"),
        replace(origin_alone, headers=asked.headers),
    ]
    for names, is_repeated in (
        (b"authorization, x-stainless-os", True),
        (b"x" * 2048, True),
        (b"x" * 2049, False),
        (b"a\x00b, c", False),
        (b"a b", False),
    ):
        allowed = [(b"access-control-allow-headers", names)] if is_repeated else []
        given = [*asked.headers, (b"access-control-request-headers", names)]
        found.append(replace(asked, headers=given, expected_headers=[*expected, *allowed]))
    return found


WANTS = [(b"accept-encoding", b"gzip, br")]
ENCODED = (b"content-encoding", b"gzip")
VARY = (b"vary", b"accept-encoding")
TEXT = (b"content-type", b"text/plain; charset=utf-8")
LONG = b"again " * 1_000


def gzip_examples() -> list[MiddlewareExample]:
    """Return examples of `gzip`: replies that it compresses, that it could, and that it leaves as they are."""
    encoded = [
        _reply(kind, headers=headers, expected=[kind, VARY, ENCODED]) for kind, headers in _compressed()
    ]
    plain = [
        *(_reply(JSON, headers=headers, expected=[JSON, VARY]) for headers in _refusals()),
        _reply(JSON, reply=[LONG[:1023]], expected=[JSON, VARY]),
        _reply(JSON, reply=[LONG, LONG], expected=[JSON, VARY]),
        _reply(JSON, method="HEAD", reply=[], expected=[JSON, VARY]),
        _reply(EVENTS, expected=[EVENTS]),
        *(_reply(JSON, status=status, reply=[], expected=[JSON]) for status in (204, 304)),
        _reply(JSON, status=206, expected=[JSON]),
        _reply((b"content-type", b"image/png"), expected=[(b"content-type", b"image/png")]),
        _reply((b"x-kind", b"none"), expected=[(b"x-kind", b"none")]),
        *(
            _reply(JSON, other, expected=[JSON, other])
            for other in ((b"content-encoding", b"identity"), (b"cache-control", b"private, no-transform"))
        ),
    ]
    tagged = [
        _reply(JSON, (b"etag", given), expected=[JSON, (b"etag", weak), VARY, ENCODED])
        for given, weak in ((b'"a"', b'W/"a"'), (b'W/"a"', b'W/"a"'))
    ]
    upper = _reply(
        (b"Content-Type", b"APPLICATION/JSON"),
        expected=[(b"content-type", b"APPLICATION/JSON"), VARY, ENCODED],
    )
    return [
        *encoded,
        *plain,
        *tagged,
        upper,
        _reply(JSON, reply=[LONG[:1024]], expected=[JSON, VARY, ENCODED]),
    ]


def _compressed() -> list[tuple[Header, list[Header]]]:
    kinds = (b"text/html", b"application/javascript", b"application/problem+json", b"application/xml")
    accepted = (b"*", b"gzip;q=0.5", b"GZIP", b"br;q=1.0, gzip; q = 1", b"*;q=0, gzip")
    return [
        *((kind, WANTS) for kind in (JSON, TEXT, *((b"content-type", each) for each in kinds))),
        *((JSON, [(b"accept-encoding", value)]) for value in accepted),
        (JSON, [(b"accept-encoding", b"br"), (b"accept-encoding", b"gzip")]),
    ]


def _refusals() -> list[list[Header]]:
    values = (b"gzip;q=0", b"br, deflate", b"gzip;q=0.0, *", b"*;q=0", b"gzip;q=x", b"gzip;x=1", b"")
    return [[], [(b"accept", b"gzip")], *([(b"accept-encoding", value)] for value in values)]


def _reply(
    *reply_headers: Header,
    expected: list[Header],
    headers: list[Header] = WANTS,
    reply: list[bytes] = [LONG],  # noqa: B006 - not changed
    method: str = "POST",
    status: int = 200,
) -> MiddlewareExample:
    return MiddlewareExample(
        method=method,
        headers=headers,
        status=status,
        reply_headers=reply_headers,
        reply=reply,
        expected_headers=expected,
    )
