"""An engine that dies or hangs is replaced, and requests live through it where they can."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import GetPolicy, PolicyInfo, SetPolicy
from llmfw.core.base.engine_info import EngineStats
from llmfw.core.base.errors import CrashingRequestError, DeadlineError, EngineDeadError, EngineRestartingError
from llmfw.core.base.request import Request, SamplingParams, TokenEvent
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.request_progress import Continuations
from llmfw.core.client.restarts import RestartPolicy
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.watchdog import WatchdogLimits

from ...doubles import echo_engine
from ...doubles.echo_engine import CRASH, EOS, HANG, WAIT
from ...doubles.request_watch import KeepingWatch

COMMAND = (sys.executable, echo_engine.__file__)
FOLDER = str(Path(echo_engine.__file__).parent)


def request(id: str, *prompt: int, may_restart: bool = False) -> Request:
    sampling = SamplingParams(max_tokens=1000)
    return Request(id=id, prompt=list(prompt), sampling=sampling, may_restart=may_restart)


def new_client(policy: RestartPolicy | None = None, step_s: float = 300.0) -> SupervisedEngineClient:
    config, limits = EngineConfig(model="echo"), WatchdogLimits(step_s, silent_s=1.5)
    return SupervisedEngineClient(partial(ProcessEngineClient, config, COMMAND, limits), policy)


@pytest.fixture
async def client() -> AsyncIterator[SupervisedEngineClient]:
    client = new_client()
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def brief_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart an engine at once; tests/core/client/test_restarts.py holds how long a client waits."""
    monkeypatch.setattr("llmfw.core.client.restarts.MOST_S", 0.01)


async def run(client: SupervisedEngineClient, wanted: Request) -> list[TokenEvent]:
    return [event async for event in client.generate(wanted)]


def tokens(events: list[TokenEvent]) -> list[int]:
    """Return what a reader has in the end that honors new starts."""
    found: list[int] = []
    for event in events:
        found = [] if event.restarted else found + event.token_ids
    return found


async def settled(client: SupervisedEngineClient, num_restarts: int = 1) -> None:
    async with asyncio.timeout(20):
        while client.num_restarts < num_restarts or client.outage is not None:
            await asyncio.sleep(0.01)


def kill(client: SupervisedEngineClient, number: int = signal.SIGKILL) -> None:
    assert client.pid is not None
    os.kill(client.pid, number)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGSTOP])
async def test_a_dead_or_hanging_engine_is_replaced(client: SupervisedEngineClient, number: int) -> None:
    before = client.pid
    kill(client, number)
    await settled(client)
    assert client.pid != before
    assert tokens(await run(client, request("a", 1, 2))) == [1, 2, EOS]


async def test_requests_without_tokens_run_again(client: SupervisedEngineClient) -> None:
    waiting = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(0.1)
    kill(client)
    await settled(client)
    await asyncio.sleep(0.1)
    assert (await client.stats()).num_running == 1
    assert not waiting.done()
    waiting.cancel()


async def test_a_started_stream_ends_with_the_reason(client: SupervisedEngineClient) -> None:
    stream = client.generate(request("a", *range(200)))
    await anext(stream)
    kill(client)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        async for _ in stream:
            pass


async def test_a_started_stream_is_continued_if_wanted() -> None:
    client = SupervisedEngineClient(
        partial(ProcessEngineClient, EngineConfig(model="echo"), COMMAND), continuations=Continuations(0)
    )
    await client.start()
    stream = client.generate(request("a", *range(60)))
    events = [await anext(stream)]
    kill(client)
    async with asyncio.timeout(20):
        events += [event async for event in stream]
    assert [token for event in events for token in event.token_ids] == [*range(60), EOS]
    assert (client.num_continued, client.num_restarts) == (1, 1)
    await client.close()


async def test_a_restartable_request_gets_its_whole_answer(client: SupervisedEngineClient) -> None:
    reading = asyncio.create_task(run(client, request("a", *range(60), may_restart=True)))
    await asyncio.sleep(0.3)
    kill(client)
    events = await asyncio.wait_for(reading, 20)
    assert [event.restarted for event in events].count(True) == 1
    assert tokens(events) == [*range(60), EOS]


async def test_requests_wait_and_questions_fail_meanwhile(client: SupervisedEngineClient) -> None:
    kill(client)
    while client.outage is None:
        await asyncio.sleep(0.01)
    assert client.failure is None
    with pytest.raises(EngineRestartingError, match="killed by SIGKILL"):
        await client.stats()
    with pytest.raises(EngineRestartingError):
        await client.control(GetPolicy())
    assert tokens(await run(client, request("a", 1))) == [1, EOS]
    assert isinstance(await client.stats(), EngineStats)


async def test_a_watch_is_not_called_for_each_token(client: SupervisedEngineClient) -> None:
    watch = KeepingWatch()
    events = [event async for event in client.watched(request("a", *range(1, 9)), watch)]
    assert watch.noted == [events[0], events[-1]]
    assert watch.num_tokens == 9


async def test_waiting_for_the_engine_is_limited() -> None:
    config = EngineConfig(model="echo")
    client = SupervisedEngineClient(partial(ProcessEngineClient, config, COMMAND), wait_s=0.05)
    await client.start()
    kill(client)
    while client.outage is None:
        await asyncio.sleep(0.01)
    with pytest.raises(EngineRestartingError, match="waited 0 s"):
        await run(client, request("a", 1))
    await client.close()


async def test_a_twice_crashing_request_ends_alone(
    client: SupervisedEngineClient, brief_delays: None
) -> None:
    innocent = [
        asyncio.create_task(run(client, request(f"r{i}", *range(50), may_restart=True))) for i in range(20)
    ]
    await asyncio.sleep(0.1)
    with pytest.raises(CrashingRequestError, match="the step failed"):
        await run(client, request("bad", CRASH, may_restart=True))
    assert all(tokens(events) == [*range(50), EOS] for events in await asyncio.gather(*innocent))
    assert client.num_restarts == 2


@pytest.mark.long
async def test_an_endless_step_is_reported_with_stacks(capfd: pytest.CaptureFixture[str]) -> None:
    client = new_client(step_s=1.0)
    await client.start()
    with pytest.raises(CrashingRequestError, match="has been in a step of 1 tokens for 1 s"):
        await run(client, request("bad", HANG))
    await client.close()
    said = capfd.readouterr().err
    assert "in _next" in said
    assert "llmfw/core/engine/process/process.py" in said


async def test_an_answer_makes_the_next_restart_immediate(
    client: SupervisedEngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for num_restarts in (1, 2):
        async with contextlib.aclosing(client.generate(request("a", 1))) as events:
            async for event in events:
                if event.finish_reason is not None:
                    break  # as the API's readers do
        kill(client)
        await settled(client, num_restarts)
    assert "is started again in" not in caplog.text


async def test_past_its_limit_the_engine_is_abandoned() -> None:
    client = new_client(RestartPolicy(max_per_hour=1))
    await client.start()
    kill(client)
    await settled(client)
    kill(client)
    lost = await asyncio.wait_for(client.wait_lost(), 20)
    assert "restarted 1 times within the last hour" in str(lost)
    assert client.failure == str(lost)
    with pytest.raises(EngineDeadError, match="last hour"):
        await run(client, request("a", 1))
    await client.close()


async def test_restart_never_leaves_the_client_dead() -> None:
    client = new_client(RestartPolicy(is_on=False))
    await client.start()
    waiting = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(0.1)
    kill(client)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        await waiting
    assert client.failure is not None
    assert client.num_restarts == 0
    await client.close()


async def test_restart_never_reports_no_restart_at_any_moment() -> None:
    client = new_client(RestartPolicy(is_on=False))
    await client.start()
    kill(client)
    async with asyncio.timeout(20):
        while client.outage is None:
            await asyncio.sleep(0)
    assert client.failure is not None
    await client.close()


async def test_after_stop_restarting_no_engine_restarts(client: SupervisedEngineClient) -> None:
    client.stop_restarting()
    kill(client, signal.SIGTERM)
    with pytest.raises(EngineDeadError, match="exit code 0"):
        await run(client, request("a", WAIT))
    assert client.num_restarts == 0


async def test_an_engine_that_cannot_restart_is_abandoned(tmp_path: Path, brief_delays: None) -> None:
    gone = tmp_path / "gone"
    code = f"import os, runpy, sys; os.path.exists({str(gone)!r}) and exit(3); sys.path.append({FOLDER!r})\n"
    code += f"runpy.run_path({echo_engine.__file__!r}, run_name='__main__')"
    new_life = partial(ProcessEngineClient, EngineConfig(model="echo"), (sys.executable, "-c", code))
    client = SupervisedEngineClient(new_life, RestartPolicy(max_per_hour=3))
    await client.start()
    gone.touch()
    kill(client)
    lost = await asyncio.wait_for(client.wait_lost(), 20)
    assert "exit code 3 while it started" in str(lost)
    assert client.num_restarts == 3
    await client.close()


async def test_an_administrator_s_policy_survives_restarts(client: SupervisedEngineClient) -> None:
    await client.control(SetPolicy("lpm"))
    kill(client)
    await settled(client)
    answer = await client.control(GetPolicy())
    assert isinstance(answer, PolicyInfo)
    assert answer.name == "lpm"


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.3])
async def test_closing_during_a_restart_leaves_no_process(delay: float) -> None:
    client = new_client()
    await client.start()
    kill(client)
    waiting = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(delay)
    await client.close()
    with pytest.raises(EngineDeadError, match="closed"):
        await waiting
    pid = client.pid
    if pid is not None:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_timeouts_continue_while_a_request_waits(client: SupervisedEngineClient) -> None:
    begun = time.monotonic()
    limited = Request(id="a", prompt=[WAIT], sampling=SamplingParams(max_tokens=9), timeout_s=0.2)
    kill(client, signal.SIGSTOP)
    with pytest.raises(DeadlineError, match=r"timeout of 0\.2 s has passed"):
        await run(client, limited)
    assert time.monotonic() - begun < 3
