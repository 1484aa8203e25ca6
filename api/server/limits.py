"""The limits of the HTTP edge, as the protocol and the body reader use them."""

from __future__ import annotations

import msgspec

from llmfw.core.base.config import ServerConfig

MIN_BYTES_PER_S = 1024
"""Slowest average rate of a body and of a reply, once the timeout has been used up."""

MAX_PIPELINED = 16
"""Requests that may wait on a connection for the reply to an earlier one."""

FREE_CHUNKS, MIN_CHUNK_BYTES = 1024, 64
"""A chunked body may have FREE_CHUNKS chunks of any size; above that, one for each MIN_CHUNK_BYTES of its bytes."""

SMALL_BODY_BYTES = 2**20
"""Largest body of routes that take ids and settings, no text: batches, uploads, administration."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection, and all of them together, may use.

    Attributes:
        connections: open at a time.
        connections_per_address: open at a time from one IP address.
        header_bytes: size of a request's line and headers together.
        headers: number of header fields.
        url_bytes: size of the path and the query together.
        header_timeout_s: from the first byte of a request (or the start of a connection) to the end of its headers.
        body_timeout_s: time to wait for a body, in addition to what it takes at MIN_BYTES_PER_S.
        send_timeout_s: time for a client to read what waits to be sent.
        idle_timeout_s: between two requests of a connection.
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
    """What one JSON body, and all of them together, may use.

    Attributes:
        body_bytes: size of one body.
        buffered_bytes: size of all bodies that are being received.
        depth: of nested objects and arrays.
        values: number of values: texts, numbers, objects, arrays and the rest.
        nodes: number of objects, arrays and member names, which take more time and memory than other values.
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
