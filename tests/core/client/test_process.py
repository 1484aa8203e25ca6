"""The engine process lives and dies with its parent, and nobody is left waiting for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import GetPolicy
from llmfw.core.base.errors import EngineDeadError, EngineError, ModelError
from llmfw.core.base.request import Request, SamplingParams, TokenEvent
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.streams import _error_of
from llmfw.core.ipc.wire import Launch, new_pair, write_launch

from ...doubles import echo_engine
from ...doubles.echo_engine import WAIT

COMMAND = (sys.executable, echo_engine.__file__)
WAITING = Request(id="a", prompt=[WAIT], sampling=SamplingParams(max_tokens=9))


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # ended before it was opened, or while it was read
        return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 8
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


@pytest.fixture
async def client() -> AsyncIterator[ProcessEngineClient]:
    client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    await client.start()
    yield client
    await client.close()


def test_a_reported_death_is_an_error() -> None:
    """An engine that reports it lives: else the request would be run again without end."""
    event = TokenEvent.failed("a", EngineDeadError("says a plugin"))
    error = _error_of(event)
    assert type(error) is EngineError
    assert str(error) == "says a plugin"


async def test_killing_the_engine_ends_streams_immediately(client: ProcessEngineClient) -> None:
    """The error names the signal."""
    stream = client.generate(WAITING)
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0.1)
    assert client.pid is not None
    killed = time.monotonic()
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match=r"killed by SIGKILL \(signal 9\)"):
        await reading
    assert time.monotonic() - killed < 3
    assert client.failure is not None


async def test_killing_the_engine_ends_pending_commands(
    client: ProcessEngineClient,
) -> None:
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)  # it will not answer
    asked = [asyncio.create_task(client.control(GetPolicy())) for _ in range(3)]
    await asyncio.sleep(0.1)
    os.kill(client.pid, signal.SIGKILL)
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answer, EngineDeadError)


async def test_the_engine_ignores_sigint_and_obeys_sigterm(client: ProcessEngineClient) -> None:
    assert client.pid is not None
    os.kill(client.pid, signal.SIGINT)
    await asyncio.sleep(0.2)
    assert (await client.stats()).num_running == 0
    os.kill(client.pid, signal.SIGTERM)
    await asyncio.to_thread(wait_for_end, client.pid)


async def test_a_started_engine_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    await client.start()
    assert (await client.stats()).num_running == 0
    assert not list(tmp_path.iterdir())
    await client.close()


async def test_closing_ends_the_process(client: ProcessEngineClient) -> None:
    assert client.pid is not None
    await client.close()
    assert not is_alive(client.pid)


@pytest.mark.parametrize("turns_of_the_loop", [1, 2, 3])
async def test_closing_ends_a_cancelled_start_s_process(
    turns_of_the_loop: int,
) -> None:
    client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    starting = asyncio.create_task(client.start())
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert client.pid is not None
    await client.close()
    assert not is_alive(client.pid)


def test_an_engine_outliving_its_loop_ends_silently() -> None:
    client = ProcessEngineClient(EngineConfig(model="echo"), (sys.executable, "-c", "input()"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        others = set(threading.enumerate())  # of engines that other tests keep
        with client.launched(), pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(client.start(), 0.1))
        for thread in set(threading.enumerate()) - others:
            thread.join(20)
            assert not thread.is_alive()
        gc.collect()
    assert [str(each.message) for each in warned] == []


async def test_an_idle_engine_uses_no_processor_time(client: ProcessEngineClient) -> None:
    def ticks() -> int:
        fields = Path(f"/proc/{client.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    await asyncio.sleep(0.3)
    before = ticks()
    await asyncio.sleep(1.0)
    assert ticks() - before <= 1  # a tick is 1 % of this second


async def test_a_start_failure_raises_the_same_exception() -> None:
    code = """
    from llmfw.core.engine.process.process import main
    from llmfw.core.base.errors import ModelError
    def build(config):
        raise ModelError("there is no model 'x'")
    main(build)
    """
    client = ProcessEngineClient(EngineConfig(model="x"), (sys.executable, "-c", textwrap.dedent(code)))
    with pytest.raises(ModelError, match="there is no model 'x'"):
        await client.start()
    await client.close()


RAISES_NOTHING = """
from llmfw.core.engine.process.process import main
def build(config):
    try:
        stop()
    except BaseException:
        print("raised", file=sys.stderr)
main(build)
"""
IMPORTS_TORCH = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.storage":
            stop()
from llmfw.core.engine.process.process import main
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("code", [RAISES_NOTHING, IMPORTS_TORCH])
def test_a_signal_ends_the_start_immediately(code: str) -> None:
    """An exception in the midst of torch's import ended in "terminate called after throwing" and SIGABRT."""
    stop = "import os, signal, sys\ndef stop():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    ours, theirs = new_pair()
    command, fds = [sys.executable, "-c", stop + code], [theirs.fileno()]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ours, subprocess.Popen(command, pass_fds=fds, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None
        write_launch(process.stdin, Launch(EngineConfig(model="x"), fds))
        theirs.close()
        assert process.wait(60) == 0
        assert ours.recv(9) == b""  # it does not say to anyone that it failed
        assert process.stderr.read() == b""


async def test_an_early_exit_reports_the_exit_code() -> None:
    client = ProcessEngineClient(EngineConfig(model="x"), (sys.executable, "-c", "raise SystemExit(7)"))
    with pytest.raises(EngineError, match="exit code 7 while it started"):
        await client.start()
    await client.close()


@pytest.mark.parametrize("moment", ["starting", "idle", "busy"])
def test_the_engine_ends_when_its_parent_is_killed(moment: str) -> None:
    code = f"""
    import asyncio, sys
    from llmfw.core.client.process import ProcessEngineClient
    from llmfw.core.base.config import EngineConfig
    from llmfw.core.base.request import Request, SamplingParams
    async def main():
        client = ProcessEngineClient(EngineConfig(model="echo"), {COMMAND!r})
        start = asyncio.create_task(client.start())
        await asyncio.wait([start], timeout=0 if {moment!r} == "starting" else None)
        if {moment!r} == "busy":
            events = client.generate(Request(id="a", prompt=[{WAIT}], sampling=SamplingParams(max_tokens=9)))
            task = asyncio.create_task(anext(events))
            await asyncio.sleep(0.1)
        print(client.pid, flush=True)
        await asyncio.sleep(60)
    asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    wait_for_end(pid)


def test_a_stopped_engine_dies_with_its_parent() -> None:
    code = f"""
    import asyncio, os, signal
    from llmfw.core.client.process import ProcessEngineClient
    from llmfw.core.base.config import EngineConfig
    async def main():
        client = ProcessEngineClient(EngineConfig(model="echo"), {COMMAND!r})
        await client.start()
        os.kill(client.pid, signal.SIGSTOP)
        print(client.pid, flush=True)
        await asyncio.sleep(60)
    asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    try:
        wait_for_end(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_engine_outlives_its_starting_thread() -> None:
    client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    launched = client.launched()
    thread = threading.Thread(target=launched.__enter__)
    thread.start()
    thread.join()

    async def ask() -> int:
        await client.start()
        try:
            return (await client.stats()).num_running
        finally:
            await client.close()

    assert asyncio.run(ask()) == 0
    launched.__exit__(None, None, None)


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE]
)
async def test_other_signals_leave_the_engine_running(number: int) -> None:
    client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    with client.launched():
        assert client.pid is not None
        os.kill(client.pid, number)  # before it has handlers of its own
        await client.start()
        os.kill(client.pid, number)
        assert (await client.stats()).num_running == 0
        await client.close()


@pytest.mark.parametrize(
    ("number", "from_outside"), [(signal.SIGKILL, True), (signal.SIGTERM, True), (signal.SIGSEGV, False)]
)
async def test_deaths_by_outside_signals_are_recognized(
    client: ProcessEngineClient, number: int, from_outside: bool
) -> None:
    assert client.pid is not None
    os.kill(client.pid, number)
    await client.wait_dead()
    assert client.was_ended_from_outside is from_outside
