"""Checks the head of a well-formed request, and recognizes clients that use another protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import httptools

Headers = Sequence[tuple[bytes, bytes]]

VERSIONS = ("1.0", "1.1")
"""Versions of HTTP that the server speaks."""


class HeadProblem(NamedTuple):
    """Why a request is refused: status, code and message of the reply.

    Attributes:
        logged: text for the log, if the message quotes the client and may contain a key; "": the message is
            logged.
    """

    status: int
    code: str
    message: str
    logged: str = ""


def problem_of(method: bytes, target: bytes, version: str, headers: Headers) -> HeadProblem | None:
    """Return the problem with a request's head, or None.

    A request that names two hosts is refused, because a proxy and this server might each use a different one.

    Args:
        version: HTTP version, such as "1.1".
    """
    if method == b"CONNECT":
        return HeadProblem(405, "method_not_allowed", "CONNECT is for proxies, and this server is none")
    if b"#" in target:  # RFC 9112, section 3.2: a proxy and this server might cut it differently
        message = (
            f"the URL {_shown(target)} has a fragment; send it without '#' and what follows, or write %23"
        )
        return HeadProblem(400, "invalid_http", message, "a URL has a fragment")
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return HeadProblem(
            400, "invalid_http", f"the URL {_shown(target)} cannot be read", "a URL cannot be read"
        )
    names = [name for name, _ in headers]
    return (
        (_coding_problem(headers) if b"transfer-encoding" in names else None)
        or (_version_problem(version) if version not in VERSIONS else None)
        or _host_problem(url.host, version, headers)
        or _key_problem(names)
        or (_expect_problem(headers) if b"expect" in names else None)
    )


def _coding_problem(headers: Headers) -> HeadProblem | None:
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings == [b"chunked"]:
        return None
    message = "the request has a transfer-encoding other than chunked; send it without"
    return HeadProblem(501, "unsupported_transfer_encoding", message)


def _version_problem(version: str) -> HeadProblem:
    message = f"the request is of HTTP/{version}; this server speaks the versions 1.0 and 1.1"
    return HeadProblem(400, "invalid_http", message)


def _key_problem(names: Sequence[bytes]) -> HeadProblem | None:
    """Return the problem if a request has the same key header twice, else None.

    A proxy might check one of the two keys, and this server the other.
    """
    for header in (b"authorization", b"x-api-key"):
        if (count := names.count(header)) > 1:
            message = f"the request has {count} headers {header.decode()}; send one"
            return HeadProblem(400, "invalid_http", message)
    return None


def _host_problem(named: bytes | None, version: str, headers: Headers) -> HeadProblem | None:
    """Return the problem with the hosts of a request, or None (RFC 9112, section 3.2).

    Args:
        named: the host in the URL.
    """
    hosts = [value.strip() for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        return HeadProblem(400, "invalid_http", f"the request has {len(hosts)} host headers; send one")
    if not hosts and version != "1.0":
        return HeadProblem(400, "invalid_http", "the request has no host header; send one")
    if named is not None and hosts and named.lower() != _name(hosts[0]):
        message = (
            f"the URL names the host {_shown(named)} and the host header {_shown(hosts[0])}; they must agree"
        )
        return HeadProblem(400, "invalid_http", message)
    return None


def _expect_problem(headers: Headers) -> HeadProblem | None:
    """Return the problem if the header `expect` is unsupported, else None (RFC 9110, section 10.1.1)."""
    for name, value in headers:
        if name == b"expect" and value.strip().lower() != b"100-continue":
            message = f"the request has the header expect: {_shown(value)}; only 100-continue is known, or leave it out"
            return HeadProblem(417, "expectation_failed", message, "the header expect is not 100-continue")
    return None


def other_protocol(data: bytes) -> str | None:
    """Return advice for a client whose first bytes are TLS or HTTP/2; None for other bytes."""
    if data.startswith(b"\x16\x03"):
        return "the client speaks TLS, and this port takes plain HTTP: use http://, or a proxy in front that ends TLS"
    if data.startswith(b"PRI * HTTP/2.0"):
        return "the client speaks HTTP/2, and this port takes HTTP/1.1: have it use that, or a proxy in front"
    return None


def _name(host: bytes) -> bytes:
    """Return the host of a `Host` header as URL parsers return it: without port, IPv6 without brackets."""
    if host.startswith(b"["):
        return host[1:].partition(b"]")[0].lower()
    return host.partition(b":")[0].lower()


def _shown(value: bytes) -> str:
    text = value.decode("latin-1")
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
