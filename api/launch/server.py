"""A server from Python, in a process of its own:

    with Server("demo") as server:
        reply = server.openai().chat.completions.create(model="demo", messages=messages)

The server's process ends with the block, and at the latest when the calling process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from llmfw.core.base.errors import ConfigError, LLMFWError

from .arguments import arguments_of, secrets_of

if TYPE_CHECKING:
    from openai import OpenAI

START_TIMEOUT_S = 600.0
"""Longest time to wait until a server is ready, in seconds: large weights take minutes."""

END_TIMEOUT_S = 60.0
"""Longest time to wait for the end of a server before it is killed, in seconds."""

SHOWN_LINES = 40
"""Last lines of the log that an error shows."""

MAX_PORTS = 5
"""Maximum number of free ports to try. Another program may take a port before the server does."""


class ServerStartError(LLMFWError):
    """The server ended before it was ready, or was not ready in time. The message has the end of its log."""


class Server:
    """`llmfw serve` in a process of its own. Use it as a context manager, or call `launch`, `wait` and `terminate`.

    Args:
        model: name of a registered model, folder, or hub id; None: the config file's model, or "demo".
        port: TCP port to listen on; 0: a free one.
        start_timeout_s: longest time to wait until the server is ready, in seconds.
        config: path of a TOML file, as for `llmfw serve --config`.
        settings: other settings of `llmfw serve` by their names in Python: `max_total_tokens=4096`,
            `options={"policy.max_overtaken": 8}`, `api_key="secret"`.

    Raises:
        ConfigError: an unknown setting. Wrong values end the server's start.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        port: int = 0,
        start_timeout_s: float = START_TIMEOUT_S,
        config: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self._port = port
        self._timeout_s = start_timeout_s
        self._host = str(settings.get("host") or "127.0.0.1")
        self._scheme = "https" if settings.get("tls_cert") else "http"
        key = settings.get("api_key") or ()
        self._key: str | None = next(iter([key] if isinstance(key, str) else key), None)
        named = [] if model is None else [f"--model={model}"]
        file = [] if config is None else [f"--config={os.fspath(config)}"]
        self._arguments = [*named, *file, *arguments_of(settings)]
        self._secrets = secrets_of(settings)
        self._is_free_port = not port
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - the log is read after the server's end, too
        weakref.finalize(self, self._log.close)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.wait()
        except BaseException:
            self.terminate()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None and not self.is_running:
            error.add_note(f"The server has ended before. The end of its log:\n{self._end_of_log()}")
        self.terminate()

    @property
    def url(self) -> str:
        """The server's URL, without a path; raises ServerStartError before `launch`."""
        if not self._port:
            raise ServerStartError(
                "the server was not launched; call launch first, or use it in a `with` block"
            )
        return f"{self._scheme}://{_reachable(self._host)}:{self._port}"

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI clients: `url` and /v1."""
        return f"{self.url}/v1"

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id, also after the end; None before `launch`."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs, or before its start."""
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        """The server's output so far."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def openai(self, **options: Any) -> OpenAI:
        """Return a client for this server from OpenAI's SDK, which must be installed.

        Args:
            options: further arguments of `openai.OpenAI`.
        """
        from openai import OpenAI

        key = "none" if self._key is None else self._key.partition("=")[2] or self._key
        return OpenAI(**{"base_url": self.base_url, "api_key": key} | options)

    def launch(self) -> Self:
        """Start the process, without waiting for it."""
        if self.is_running:
            return self
        if self._is_free_port:
            self._port = _free_port(self._host)
        command = [sys.executable, "-m", "llmfw.api.launch.child", "serve", f"--port={self._port}"]
        self._process = subprocess.Popen(
            [*command, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | self._secrets,
            start_new_session=True,  # Ctrl-C in a terminal reaches only the caller, which ends the server
        )
        atexit.register(self.terminate)
        return self

    def wait(self) -> Self:
        """Wait until the server takes requests.

        Raises:
            ServerStartError: the server has ended, or `start_timeout_s` has passed. In both cases, its
                process has ended.
        """
        deadline = time.monotonic() + self._timeout_s
        num_ports = 1
        with httpx.Client(trust_env=False, timeout=5, verify=self._trust()) as http:
            while not self._is_ready(http):
                if self.is_running:
                    if time.monotonic() > deadline:
                        self._fail(f"the server was not ready after {self._timeout_s:g} s")
                    time.sleep(0.05)
                elif self._lost_its_port() and num_ports < MAX_PORTS:
                    num_ports += 1
                    self.launch()
                else:
                    self._fail(f"the server ended with exit code {self.exit_code} before it was ready")
        return self

    def terminate(self, timeout_s: float = END_TIMEOUT_S) -> int | None:
        """End the server, and all of its processes. Running requests may end first (see `--drain-timeout`).

        Args:
            timeout_s: longest time to wait in seconds, after which the processes are killed.

        Returns:
            The exit code, or None if the server was not launched. Further calls return the same exit code.
        """
        process = self._process
        if process is None:
            return None
        atexit.unregister(self.terminate)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also after Ctrl-C during the wait
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        return process.returncode

    def _is_ready(self, http: httpx.Client) -> bool:
        try:
            return self.is_running and http.get(f"{self.url}/health/ready").is_success
        except httpx.TransportError:
            return False

    def _lost_its_port(self) -> bool:
        return self._is_free_port and "Error: cannot listen on" in self.log

    def _trust(self) -> ssl.SSLContext | bool:
        """Return httpx's `verify` for readiness requests: any certificate, since it may name another host."""
        if self._scheme == "http":
            return True
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _fail(self, problem: str) -> None:
        self.terminate()
        raise ServerStartError(f"{problem}; the end of its log:\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        return "\n".join(self.log.splitlines()[-SHOWN_LINES:])


def _free_port(host: str) -> int:
    """Return a TCP port that no program listens on; raise ConfigError if the host is not an address of this machine."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ConfigError(
            f"host is {host!r}; it must be an address of this machine: {error.strerror}"
        ) from error


def _reachable(host: str) -> str:
    """Return a host in the form for URLs. The address of all interfaces becomes the loopback address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"[{address}]" if address.version == 6 else str(address)
