"""The limits of the HTTP edge, as the protocol and the body reader use them."""

from __future__ import annotations

import msgspec

from llmfw.core.base.config import ServerConfig

MIN_BYTES_PER_S = 1024
"""Slowest allowed average rate of a body and of a reply, once their timeout has passed."""

MAX_PIPELINED = 16
"""Maximum number of requests on one connection that wait for the reply to an earlier one."""

FREE_CHUNKS, MIN_CHUNK_BYTES = 1024, 64
"""Limit on the chunks of a body: FREE_CHUNKS, plus one for each MIN_CHUNK_BYTES bytes of the body."""

SMALL_BODY_BYTES = 2**20
"""Largest body of routes that take ids and settings but no text: batches, uploads, administration."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection, and of all connections together.

    Attributes:
        connections: maximum number of connections open at a time.
        connections_per_address: maximum number of connections open at a time from one IP address.
        header_bytes: maximum size of a request line and its headers together, in bytes.
        headers: maximum number of header fields of a request.
        url_bytes: maximum size of path and query together, in bytes.
        header_timeout_s: maximum number of seconds from the first byte of a request (or the start of a
            connection) to the end of its headers.
        body_timeout_s: maximum number of seconds to wait for a body, in addition to its transfer time at
            MIN_BYTES_PER_S.
        send_timeout_s: maximum number of seconds for which a client may leave sent bytes unread, in addition
            to their transfer time at MIN_BYTES_PER_S.
        idle_timeout_s: maximum number of seconds between two requests of a connection.
    """

    connections: int
    connections_per_address: int
    header_bytes: int
    headers: int
    url_bytes: int
    header_timeout_s: float
    body_timeout_s: float
    send_timeout_s: float
    idle_timeout_s: float


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one JSON body, and of all bodies together.

    Attributes:
        body_bytes: maximum size of one body, in bytes.
        buffered_bytes: maximum size of all bodies that are being received, in bytes.
        depth: maximum nesting depth of objects and arrays.
        values: maximum number of values of any type: strings, numbers, objects, arrays, ...
        nodes: maximum number of objects, arrays and member names, which take more time and memory than other
            values.
    """

    body_bytes: int
    buffered_bytes: int
    depth: int
    values: int
    nodes: int


def connection_limits(config: ServerConfig) -> ConnectionLimits:
    """Return the connection limits that a server's settings define."""
    return ConnectionLimits(
        connections=config.max_connections,
        connections_per_address=config.max_connections_per_address,
        header_bytes=config.max_header_bytes,
        headers=config.max_headers,
        url_bytes=config.max_url_bytes,
        header_timeout_s=config.header_timeout,
        body_timeout_s=config.body_timeout,
        send_timeout_s=config.send_timeout,
        idle_timeout_s=config.idle_timeout,
    )


def body_limits(config: ServerConfig) -> BodyLimits:
    """Return the body limits that a server's settings define."""
    return BodyLimits(
        body_bytes=config.max_body_mb * 2**20,
        buffered_bytes=max(config.max_buffered_mb, config.max_body_mb) * 2**20,
        depth=config.max_json_depth,
        values=config.max_json_values,
        nodes=config.max_json_nodes,
    )
