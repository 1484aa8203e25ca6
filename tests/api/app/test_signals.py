"""What signals do to a running server: those that mean it stop it, the others have their line in the log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ...core.client.test_process import wait_for_end
from ...doubles import serve_echo
from ...length import also
from .test_serve import LLMFW, MODEL, READY, Process, json, running, time


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Process]:
    """A server without files of keys. The tests come in an order; the last one that uses it ends it."""
    with running(sys.executable, serve_echo.__file__, str(model)) as process:
        process.wait_for(READY)
        yield process


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGHUP, "There is no file of API keys to read again"),
        (signal.SIGUSR2, "SIGUSR2 is ignored; send SIGTERM to stop the server"),
        (signal.SIGALRM, "SIGALRM is ignored; send SIGTERM to stop the server"),
        (signal.SIGUSR1, "the engine writes its own"),
    ],
)
def test_other_signals_leave_the_server_running(server: Process, number: int, line: str) -> None:
    server.popen.send_signal(number)
    server.wait_for(line)
    assert httpx.get(server.url + "/health").status_code == 200


def test_sigusr1_writes_the_stacks_of_both_processes(server: Process) -> None:
    server.popen.send_signal(signal.SIGUSR1)
    server.wait_for('/api/app/event_loop.py"')
    server.wait_for('/engine/process/process.py"')


def test_a_broken_pipe_leaves_the_server_running(server: Process) -> None:
    server.popen.send_signal(signal.SIGPIPE)
    assert httpx.get(server.url + "/health").status_code == 200


def test_sigquit_stops_the_server_cleanly(server: Process) -> None:
    engine = server.engine_pid()
    assert server.end(signal.SIGQUIT) == 0
    assert "Traceback" not in server.log
    assert not Path(f"/proc/{engine}").exists()


@pytest.mark.parametrize("delay_s", [0.2, *also([0.0, 0.05, 0.5])])
def test_sigterm_while_loading_leaves_no_process(model: Path, delay_s: float) -> None:
    with running(*LLMFW, str(model), "--load-format", "dummy", "--port", "0") as process:
        process.wait_for("Settings")
        time.sleep(delay_s)
        children = process.children()
        process.popen.send_signal(signal.SIGHUP)  # ends nothing at any moment
        process.popen.send_signal(signal.SIGTERM)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(15) == 0
        assert "Traceback" not in process.log
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (130, 130), (None, -signal.SIGTERM)])
def test_a_late_signal_keeps_the_exit_code(code: int | None, expected: int) -> None:
    """It comes when the server has stopped and the interpreter has not ended yet."""
    script = (
        "import os, signal, time; from llmfw.api.app.signals import Signals\n"
        f"with Signals() as signals: signals.exit_code = {code}\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == expected


def test_a_signal_at_interpreter_exit_is_ignored() -> None:
    script = (
        "import os, signal; from llmfw.api.app.signals import Signals\n"
        "with Signals() as signals: signals.exit_code = 3\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, 15)\n"
        "late = Late()"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_a_stopped_engine_ends_with_a_killed_server(model: Path) -> None:
    with running(sys.executable, serve_echo.__file__, str(model)) as process:
        process.wait_for(READY)
        engine = process.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        process.popen.kill()
        try:
            wait_for_end(engine)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)
