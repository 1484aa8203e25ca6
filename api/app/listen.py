"""Binds the server's port before the slow parts of a start. Errors say why the port cannot be bound."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from llmfw.core.base.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet, so that connections are still refused.

    Raises:
        ConfigError: the address is not one of this machine's, or the port is taken or not allowed.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"host {host!r} is not an address: {error.strerror}") from error
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        hint = "" if port else " (of any free port)"
        problem = f"cannot listen on {host}:{port}{hint}: {os.strerror(error.errno or 0)}"
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"{problem}; give an address of this machine with --host") from error
        raise ConfigError(f"{problem}; choose another with --port") from error
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the URL under which a bound socket can be reached."""
    host, port = sock.getsockname()[:2]
    with contextlib.suppress(ValueError):
        if sock.family == socket.AF_INET6:
            host = f"[{host}]"
    return f"http://{host}:{port}"
