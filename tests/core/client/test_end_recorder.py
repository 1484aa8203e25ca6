"""An engine's unexpected end is reported once, with what the engine has recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, EngineDeadError, EngineError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.end_recorder import EndRecorder
from llmfw.core.client.engine_end import EngineEnd
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.watchdog import WatchdogLimits
from llmfw.core.engine.process.heartbeat import Phase

from ...doubles import echo_engine
from ...doubles.echo_engine import CRASH, HANG

COMMAND = (sys.executable, echo_engine.__file__)


class Ends:
    """Collects reported ends.

    Attributes:
        found: the ends.
    """

    def __init__(self) -> None:
        self.found: list[EngineEnd] = []

    def new_client(self, command: tuple[str, ...] = COMMAND) -> ProcessEngineClient:
        limits = WatchdogLimits(1.0, silent_s=30.0)
        return ProcessEngineClient(
            EngineConfig(model="echo"), command, limits, EndRecorder(self.found.append)
        )


async def run(client: ProcessEngineClient, *prompt: int) -> None:
    async for _ in client.generate(
        Request(id="a", prompt=list(prompt), sampling=SamplingParams(max_tokens=99))
    ):
        pass


async def ended(client: ProcessEngineClient) -> None:
    async with asyncio.timeout(20):
        await client.wait_dead()
    await client.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_killed_engine_s_records_are_reported(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    ends = Ends()
    client = ends.new_client()
    await client.start()
    await run(client, 1, 2, 3)
    while client.heartbeat().phase is not Phase.IDLE:
        await asyncio.sleep(0.01)
    assert client.pid is not None
    os.kill(client.pid, number)
    await ended(client)
    [end] = ends.found
    assert end.returncode == -number
    assert signal.Signals(number).name in end.reason
    assert (end.phase, end.has_hung, end.message) == (Phase.IDLE, False, "")
    assert end.info is not None
    assert [step.sizes.num_sequences for step in end.steps] == [1, 1, 1, 1]
    assert ("most recent call first" in end.stacks) is (number == signal.SIGSEGV)
    assert end.stacks in capfd.readouterr().err


async def test_a_hung_engine_s_stacks_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    ends = Ends()
    client = ends.new_client()
    await client.start()
    with pytest.raises(EngineDeadError):
        await run(client, HANG)
    await ended(client)
    [end] = ends.found
    assert end.has_hung
    assert end.phase is Phase.STEP
    assert "in _next" in end.stacks
    assert "in _next" in capfd.readouterr().err  # the log has them, too


async def test_a_failed_engine_s_message_is_kept_apart() -> None:
    ends = Ends()
    client = ends.new_client()
    await client.start()
    with pytest.raises(EngineDeadError, match="the step failed"):
        await run(client, CRASH)
    await ended(client)
    [end] = ends.found
    assert (end.reason, end.message) == ("the engine failed: RuntimeError", "the step failed")
    assert "  RuntimeError\n" in end.log
    assert "RuntimeError: the step failed" not in end.log


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
async def test_an_expected_end_is_not_reported(number: int | None) -> None:
    ends = Ends()
    client = ends.new_client()
    await client.start()
    if number is not None:
        assert client.pid is not None
        os.kill(client.pid, number)
        await ended(client)
    await client.close()
    assert ends.found == []


async def test_a_cancelled_start_is_not_reported() -> None:
    ends = Ends()
    client = ends.new_client()
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await client.close()
    assert ends.found == []


async def test_a_crash_while_starting_is_reported() -> None:
    ends = Ends()
    client = ends.new_client((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    with pytest.raises(EngineError, match="SIGKILL"):
        await client.start()
    await client.close()
    [end] = ends.found
    assert (end.info, end.phase, end.steps) == (None, Phase.BUILDING, [])


async def test_a_wrong_setting_is_not_reported() -> None:
    failing = (
        "from llmfw.core.base.errors import ConfigError\n"
        "from llmfw.core.engine.process.process import main\n"
        "def build(config): raise ConfigError('page_size is 3')\n"
        "main(build)\n"
    )
    ends = Ends()
    client = ends.new_client((sys.executable, "-c", failing))
    with pytest.raises(ConfigError, match="page_size is 3"):
        await client.start()
    await client.close()
    assert ends.found == []
