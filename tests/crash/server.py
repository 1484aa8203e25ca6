"""A real `llmfw serve` in a process group of its own: started, killed at any moment, and started again.

Needs /proc. Knows nothing of what is asked of the server. A start with the demo model takes about six seconds, five of
them for the engine's imports; with the echo engine, behind which all that keeps anything is real, less than two.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from ..doubles.echo_engine import EOS
from ..doubles.serving import LAST_MESSAGE

SERVE = (sys.executable, "-m", "llmfw.api", "serve")
SERVE_ECHO = (sys.executable, str(Path(__file__).parent / "serve_echo.py"))
SERVE_POISON = (sys.executable, str(Path(__file__).parent / "serve_poison.py"))
ECHO_MODEL = {"vocab_size": 256, "eos_token_id": EOS}  # a token for each byte
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0


def free_port() -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def can_listen(port: int) -> bool:
    """Return whether a server that starts now would get this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def members(group: int) -> list[int]:
    """Return the processes of a group or session that have not ended. What is only to be reaped has."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        state, group_id, session_id = fields[0], int(fields[2]), int(fields[3])
        if group in (group_id, session_id) and state not in ("Z", "X"):
            found.append(int(path.parent.name))
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return when something has come true.

    Raises:
        TimeoutError: it did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took more than {timeout_s:g} s")
        time.sleep(0.01)


class ServerProcess:
    """`llmfw serve` on a folder, any number of times, one after the other, on one port.

    Args:
        folder: is given `storage`, the server's storage, `tmp`, what it takes for temporary files, and `log`, what all
            runs have written.
        options: further ones of the command line; of several --storage the last one counts.
        command: what is run; it must take the options of `llmfw serve`.
        trust: for a server that speaks HTTPS: what its certificate is checked by.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        command: tuple[str, ...] = SERVE,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"{'https' if trust else 'http'}://127.0.0.1:{self.port}"
        self.storage = folder / "storage"
        self.tmp = folder / "tmp"
        self.log = folder / "log"
        self.tmp.mkdir(parents=True)
        self._command = (*command, "--port", str(self.port), "--storage", str(self.storage), *options)
        self._http = httpx.Client(verify=trust or True, trust_env=False, timeout=5)
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()
        self._http.close()

    @property
    def pids(self) -> list[int]:
        """The processes that run: the API's, and the engine's once it is started."""
        return members(self._popen.pid) if self._popen is not None else []

    @property
    def has_ended(self) -> bool:
        """Whether the API process was started and has ended."""
        return self._popen is not None and self._popen.poll() is not None

    @property
    def engine_pids(self) -> list[int]:
        """The engine process; two while one is replaced, none before it is started."""
        return [pid for pid in self.pids if self._popen is not None and pid != self._popen.pid]

    def signal_engine(self, number: int) -> None:
        """Send a signal to the engine process alone."""
        for pid in self.engine_pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal_api(self, number: int) -> None:
        """Send a signal to the API process alone."""
        assert self._popen is not None
        self._popen.send_signal(number)

    def kill_api(self) -> None:
        """End the API process alone by SIGKILL; returns when the engine has ended by itself, too."""
        assert self._popen is not None
        self._popen.kill()
        self._gone()

    def wait_ended(self) -> int:
        """Return the exit status of a server that ends by itself."""
        assert self._popen is not None
        return self._popen.wait(END_TIMEOUT_S)

    def launch(self) -> None:
        """Start the processes, without waiting for anything."""
        assert not self.pids, f"processes of the last run are left: {self.pids}"
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"TMPDIR": str(self.tmp)},
                start_new_session=True,
            )

    def start(self) -> float:
        """Start, wait until it is healthy, and return how many seconds that took."""
        started = time.monotonic()
        self.launch()
        wait_until(self._healthy, START_TIMEOUT_S, "the start")
        return time.monotonic() - started

    def kill(self) -> None:
        """End all processes by SIGKILL; returns when they are gone and the port is free. It may not be running."""
        self._signal(signal.SIGKILL)
        self._gone()

    def signal(self, number: int) -> None:
        """Send a signal to the API process alone."""
        assert self._popen is not None
        self._popen.send_signal(number)

    def stop(self) -> int:
        """End it as a user would, and return the exit status."""
        assert self._popen is not None
        self.signal(signal.SIGTERM)
        status = self._popen.wait(END_TIMEOUT_S)
        self._gone()
        return status

    def _healthy(self) -> bool:
        assert self._popen is not None
        if self._popen.poll() is not None:
            raise RuntimeError(f"the server ended while it started:\n{self.log.read_text()}")
        try:
            return self._http.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False

    def _signal(self, number: int) -> None:
        if self._popen is not None and self.pids:
            os.killpg(self._popen.pid, number)

    def _gone(self) -> None:
        if self._popen is not None:
            self._popen.wait(END_TIMEOUT_S)
        wait_until(lambda: not self.pids, END_TIMEOUT_S, "the end of all processes")
        wait_until(lambda: can_listen(self.port), END_TIMEOUT_S, "freeing the port")


def echo_server(
    folder: Path,
    *options: str,
    command: tuple[str, ...] = SERVE_ECHO,
    trust: ssl.SSLContext | None = None,
) -> ServerProcess:
    """Return a server of the model `echo`: it answers with the last message or the prompt, 10 ms a byte."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(ECHO_MODEL))
    template = model / "last_message.jinja"
    template.write_text(LAST_MESSAGE)
    named = ("--served-model-name", "echo", "--chat-template", str(template))
    given = (str(model), "--load-format", "dummy", *named, *options)
    return ServerProcess(folder, *given, command=command, trust=trust)
