"""The server's certificate for TLS, which is read again when its files change."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.user_path import user_path

from .file_watch import FileWatch

_NO_PASSWORD = ""  # if None, OpenSSL asks on the terminal for an encrypted key's password


class Certificate:
    """A certificate chain and its private key. New connections use the newest valid one.

    Args:
        cert: PEM file with the certificate, followed by the intermediate certificates.
        key: PEM file with the private key; None: it is in `cert`.

    Attributes:
        context: TLS settings for listening sockets. It stays the same object when the files are read again.

    Raises:
        ConfigError: a file cannot be read, is not a PEM file, or the key is encrypted or another certificate's.
    """

    def __init__(self, cert: Path, key: Path | None = None) -> None:
        self._cert = cert
        self._key = key
        paths = [path for path in (cert, key) if path is not None]
        self._watch = FileWatch("certificate and key", paths, self._read, self._use)
        self.context = self._current = self._read()
        self.context.sni_callback = self._choose

    def start(self) -> None:
        """Start to read the files again when they change."""
        self._watch.start()

    def read_again(self) -> None:
        """Read the files again soon, even if they have not changed, and log the result."""
        self._watch.read_again()

    async def reload(self) -> None:
        """Read the files again now. If they are not valid, raise ConfigError and keep the old certificate."""
        await self._watch.reload()

    async def close(self) -> None:
        """Stop reading the files again."""
        await self._watch.close()

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        """Make a new connection use the current certificate. OpenSSL calls this in each handshake.

        Each certificate has a context of its own. If new files were loaded into the first context, and only
        the key were wrong, that context would have a new certificate with an old key.
        """
        connection.context = self._current

    def _use(self, context: ssl.SSLContext) -> str:
        self._current = context
        return "new connections use them"

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        for path in (self._cert, self._key):
            if path is not None and not path.is_file():
                raise ConfigError(f"{str(path)!r} is not a file; give a PEM file by --tls-cert and --tls-key")
        try:
            context.load_cert_chain(self._cert, self._key, _NO_PASSWORD)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(self._problem(error)) from error
        return context

    def _problem(self, error: Exception) -> str:
        files = f"the certificate {str(self._cert)!r}"
        if self._key is not None:
            files += f" and the key {str(self._key)!r}"
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        return f"{files} cannot be used: {reason}; both must be PEM files, and the key that of the certificate, not encrypted"


def certificate_of(config: ServerConfig) -> Certificate | None:
    """Return the certificate that the settings name; None if they name none.

    Raises:
        ConfigError: it cannot be used, or there is a key without a certificate.
    """
    if config.tls_cert is None:
        if config.tls_key is not None:
            raise ConfigError(f"--tls-key is {config.tls_key!r}, without --tls-cert; give both")
        return None
    key = None if config.tls_key is None else user_path(config.tls_key, "--tls-key")
    return Certificate(user_path(config.tls_cert, "--tls-cert"), key)
