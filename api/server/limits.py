"""Limits of the HTTP server, for the protocol and the body reader."""

from __future__ import annotations

import msgspec

from llmfw.core.base.config import ServerConfig

MIN_BYTES_PER_S = 1024
"""Minimum average rate of a body and of a reply, after the timeout."""

MAX_PIPELINED = 16
"""Maximum number of requests that wait on a connection for the reply to an earlier one."""

FREE_CHUNKS, MIN_CHUNK_BYTES = 1024, 64
"""A chunked body may have FREE_CHUNKS chunks of any size; above that, one for each MIN_CHUNK_BYTES of its bytes."""

SMALL_BODY_BYTES = 2**20
"""Maximum body size of routes that take ids and settings, no text: batches, uploads, administration."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection, and of all together.

    Attributes:
        connections: maximum number of open connections.
        connections_per_address: maximum number of open connections from one IP address.
        header_bytes: maximum size of request line and headers together.
        headers: maximum number of header fields.
        url_bytes: maximum size of path and query together.
        header_timeout_s: seconds from a request's first byte (or the start of a connection) to the end of its headers.
        body_timeout_s: seconds to wait for a body, in addition to its time at MIN_BYTES_PER_S.
        send_timeout_s: seconds for a client to read data that waits to be sent.
        idle_timeout_s: maximum seconds between two requests of a connection.
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
    """Limits of one JSON body, and of all together.

    Attributes:
        body_bytes: maximum size of one body.
        buffered_bytes: maximum total size of bodies that are being received.
        depth: maximum depth of nested objects and arrays.
        values: maximum number of values: texts, numbers, objects, arrays and the rest.
        nodes: maximum number of objects, arrays and member names, which take more time and memory than other values.
    """

    body_bytes: int
    buffered_bytes: int
    depth: int
    values: int
    nodes: int


def connection_limits(config: ServerConfig) -> ConnectionLimits:
    """Return the connection limits of a server's settings."""
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
    """Return the body limits of a server's settings."""
    return BodyLimits(
        body_bytes=config.max_body_mb * 2**20,
        buffered_bytes=max(config.max_buffered_mb, config.max_body_mb) * 2**20,
        depth=config.max_json_depth,
        values=config.max_json_values,
        nodes=config.max_json_nodes,
    )
