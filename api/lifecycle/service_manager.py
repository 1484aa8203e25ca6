"""Reports the server's state to systemd by the protocol of sd_notify(3).

Does nothing unless the service manager has set NOTIFY_SOCKET, as it does for units of `Type=notify`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that has started the server, if there is one.

    Args:
        address: path of the service manager's datagram socket, where a leading "@" stands for the zero byte
            of an abstract socket; None: there is no service manager.
        watchdog_s: seconds without a sign of life after which the service manager ends the server; None:
            never.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self._watchdog_s = watchdog_s

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServiceManager:
        """Return the service manager that the environment names. Ignores a watchdog for another process."""
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_s = int(usec) / 1e6 if usec.isdecimal() and int(usec) and is_ours else None
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog_s)

    def ready(self, status: str) -> None:
        """Say that the server takes requests.

        Args:
            status: one line for `systemctl status`.
        """
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """Say that the server is about to end."""
        self._tell(f"STOPPING=1\nSTATUS={status}")

    @contextlib.contextmanager
    def kept_informed(self) -> Iterator[None]:
        """Send signs of life while the event loop runs, until the end of the `with` block."""
        if self._address is None or self._watchdog_s is None:
            yield
            return
        task = asyncio.create_task(self._send_signs(self._watchdog_s / 3))
        try:
            yield
        finally:
            task.cancel()

    async def _send_signs(self, interval_s: float) -> None:
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(interval_s)

    def _tell(self, text: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(text.encode(), address)
        except OSError as error:
            logger.warning("The service manager at NOTIFY_SOCKET (%s) was not told: %s", self._address, error)
