"""What administrators and signals control while a server runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from llmfw.api.access.keyring import Keyring
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.lifecycle.service_manager import ServiceManager
from llmfw.api.server.tls import Certificate


@dataclass(frozen=True, slots=True)
class ServerControls:
    """Keys and certificate, whose files can be read again, and the drain, which ends the server.

    Attributes:
        keys: API keys of the clients.
        drain: drain of the server, to which the application adds its work.
        certificate: certificate for TLS; None: connections are plain.
        manager: service manager, such as systemd, that gets the state of the server.
    """

    keys: Keyring
    drain: Drain
    certificate: Certificate | None = None
    manager: ServiceManager = field(default_factory=ServiceManager)

    def read_files_again(self) -> None:
        """Start to read the files of keys and certificate again. Errors are logged."""
        self.keys.read_again()
        if self.certificate is not None:
            self.certificate.read_again()

    def reloads(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return functions that read files again, by kind of file. They raise ConfigError if a file is wrong."""
        found: dict[str, Callable[[], Awaitable[None]]] = {}
        if self.keys.has_files:
            found["API keys"] = self.keys.reload
        if self.certificate is not None:
            found["certificate and key"] = self.certificate.reload
        return found
