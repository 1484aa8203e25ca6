"""Binds the server's port, or its Unix socket, before the slow parts of a start. Errors give the reason."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.user_path import user_path

UNIX_MODE = 0o660
"""Permissions of a Unix socket: its owner and group can connect."""


@contextlib.contextmanager
def listening(config: ServerConfig) -> Iterator[socket.socket]:
    """Bind the socket that the settings choose; at the end of the block, close it and remove a Unix socket's file.

    Raises:
        ConfigError: the socket cannot be bound, or the settings choose both a port and a Unix socket.
    """
    if config.uds is None:
        with contextlib.closing(bind(config.host, config.port)) as sock:
            yield sock
        return
    for field in ("host", "port"):
        if (value := getattr(config, field)) != getattr(_DEFAULTS, field):
            raise ConfigError(f"--uds is {config.uds!r}, and --{field} is {value!r}; give one of them")
    path = user_path(config.uds, "--uds")
    with _locked(path), contextlib.closing(bind_unix(path)) as sock:
        file = path.stat().st_ino
        try:
            yield sock
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == file:  # else another server has it
                    path.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file of a Unix socket during the block, and remove it at the end.

    A server that still loads its model does not listen yet. Without the lock, another server would mistake
    its socket for a stale one.

    Raises:
        ConfigError: another process holds the lock file, or the file cannot be created.
    """
    import fcntl

    lock = path.with_name(f"{path.name}.lock")
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {str(path)!r}: {error.strerror}; choose another path with --uds"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {str(path)!r}: another server has it; choose another path with --uds"
            ) from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(file)


_DEFAULTS = ServerConfig(served_model_name="")


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


def bind_unix(path: Path) -> socket.socket:
    """Bind a Unix socket to a path and return it, not listening yet. Replaces a stale socket file.

    Raises:
        ConfigError: the path is in use, is an existing file that is not a socket, or cannot be created.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_over(path):
            path.unlink()
        old = os.umask(0o777 & ~UNIX_MODE)
        try:
            sock.bind(str(path))
        finally:
            os.umask(old)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen on {str(path)!r}: {reason}; choose another path with --uds"
        ) from error
    return sock


def _is_left_over(path: Path) -> bool:
    """Return whether a path is a stale socket, on which no process listens.

    Raises:
        OSError: a process listens on the socket, or the path is not a socket.
    """
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    if not is_socket:
        raise FileExistsError(errno.EEXIST, "another file is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def url_of(sock: socket.socket, *, is_tls: bool = False) -> str:
    """Return the URL under which a bound socket can be reached; for a Unix socket, "unix:" and its path."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    with contextlib.suppress(ValueError):
        if sock.family == socket.AF_INET6:
            host = f"[{host}]"
    return f"{'https' if is_tls else 'http'}://{host}:{port}"
