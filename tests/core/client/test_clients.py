"""Both kinds of client, by the same promises; the engine process is a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import GetPolicy, PinInfo, PinPrefix, PolicyInfo, SetPolicy
from llmfw.core.base.errors import EngineDeadError, EngineError, OverloadedError, RequestError
from llmfw.core.base.request import Request, SamplingParams, TokenEvent
from llmfw.core.client.client import EngineClient
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.client.process import ProcessEngineClient

from ...doubles import echo_engine
from ...doubles.echo_administration import BREAK_POLICY
from ...doubles.echo_engine import BREAK, CRASH, EOS, FULL, LATER, REFUSE, SOON, WAIT, EchoEngine

COMMAND = (sys.executable, echo_engine.__file__)


def request(id: str, *prompt: int) -> Request:
    return Request(id=id, prompt=list(prompt), sampling=SamplingParams(max_tokens=100))


async def run(client: EngineClient, wanted: Request) -> list[TokenEvent]:
    return [event async for event in client.generate(wanted)]


@pytest.fixture(params=["inproc", "process"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    if request.param == "inproc":
        client: EngineClient = InprocEngineClient(EchoEngine(delay=0.01))  # type: ignore[arg-type]
    else:
        client = ProcessEngineClient(EngineConfig(model="echo"), COMMAND)
    await client.start()
    yield client
    await client.close()


async def test_events_are_ordered_and_end_with_a_reason(client: EngineClient) -> None:
    events = await run(client, request("a", 1, 2, 3))
    assert [event.token_ids for event in events] == [[1], [2], [3], [EOS]]
    assert [event.finish_reason for event in events] == [None, None, None, "stop"]


async def test_concurrent_requests_receive_their_own_events(client: EngineClient) -> None:
    wanted = [request(f"r{i}", *range(i, i + 5)) for i in range(50)]
    for asked, events in zip(wanted, await asyncio.gather(*(run(client, r) for r in wanted)), strict=True):
        assert [token for event in events for token in event.token_ids] == [*asked.prompt, EOS]


async def test_info_and_stats_equal_the_engine_s(client: EngineClient) -> None:
    assert client.info.architecture == "Echo"
    task = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(0.1)
    assert (await client.stats()).num_running == 1
    task.cancel()


async def test_leaving_a_stream_aborts_its_request(client: EngineClient) -> None:
    async with aclosing(client.generate(request("a", *range(90)))) as events:
        await anext(events)
    waiting = asyncio.create_task(run(client, request("b", WAIT)))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.sleep(0.2)
    assert (await client.stats()).num_running == 0


@pytest.mark.parametrize(
    ("token", "kind", "param", "words"),
    [
        (REFUSE, RequestError, "prompt", "refuses"),
        (BREAK, EngineError, None, "ZeroDivisionError: a defect"),
    ],
)
async def test_a_rejected_request_ends_alone(
    client: EngineClient, token: int, kind: type[Exception], param: str | None, words: str
) -> None:
    other = asyncio.create_task(run(client, request("other", *range(20))))
    with pytest.raises(kind, match=words) as caught:
        await run(client, request("bad", token))
    assert getattr(caught.value, "param", None) == param
    assert len(await other) == 21


async def test_a_running_id_is_refused_alone(client: EngineClient) -> None:
    """The refused request took away the stream of the first one, which then never ended."""
    first = asyncio.create_task(run(client, request("a", 1, 2, 3)))
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="a request with id 'a' runs already"):
        await run(client, request("a", 4))
    assert [event.token_ids for event in await asyncio.wait_for(first, 20)] == [[1], [2], [3], [EOS]]


async def test_background_results_wake_a_sleeping_engine(client: EngineClient) -> None:
    for i in range(2):
        events = await asyncio.wait_for(run(client, request(f"r{i}", LATER)), 5)
        assert [event.token_ids for event in events] == [[LATER], [EOS]]


async def test_a_sleeping_engine_wakes_on_time(client: EngineClient) -> None:
    for i in range(2):
        events = await asyncio.wait_for(run(client, request(f"r{i}", SOON)), 10)
        assert [event.token_ids for event in events] == [[SOON], [EOS]]


async def test_a_refusal_names_the_retry_time(client: EngineClient) -> None:
    with pytest.raises(OverloadedError, match="the queue is full") as caught:
        await run(client, request("a", FULL))
    assert caught.value.retry_after_s == 7.5


async def test_a_failing_step_ends_all_streams(client: EngineClient) -> None:
    other = asyncio.create_task(run(client, request("other", WAIT)))
    await asyncio.sleep(0.05)
    with pytest.raises(EngineDeadError, match="RuntimeError: the step failed"):
        await run(client, request("bad", CRASH))
    with pytest.raises(EngineDeadError, match="the step failed"):
        await other
    assert client.failure is not None
    with pytest.raises(EngineDeadError):
        await run(client, request("late", 1))
    with pytest.raises(EngineDeadError):
        await client.stats()


async def test_concurrent_commands_receive_their_own_answers(client: EngineClient) -> None:
    stream = asyncio.create_task(run(client, request("a", *range(20))))
    asked = [client.control(PinPrefix([1] * (i + 1), 60.0)) for i in range(30)]
    pins = await asyncio.gather(*asked, client.stats())
    sizes = [pin.num_tokens for pin in pins if isinstance(pin, PinInfo)]
    assert sizes == list(range(1, 31))
    assert len(await stream) == 21


async def test_a_refused_command_raises_the_engine_s_error(client: EngineClient) -> None:
    with pytest.raises(RequestError, match="unknown policy 'x'; known: fcfs, lpm") as caught:
        await client.control(SetPolicy("x"))
    assert (caught.value.param, caught.value.code) == ("name", "unknown")
    assert await client.control(GetPolicy()) == PolicyInfo("fcfs", {}, None, ["fcfs", "lpm"])


async def test_a_failing_command_keeps_the_engine_running(
    client: EngineClient,
) -> None:
    with pytest.raises(EngineError, match="ZeroDivisionError: a defect of the policy"):
        await client.control(SetPolicy(BREAK_POLICY))
    assert len(await run(client, request("a", 1))) == 2


async def test_a_cancelled_command_disturbs_no_other(client: EngineClient) -> None:
    gone = asyncio.create_task(client.control(PinPrefix([1], 60.0)))
    await asyncio.sleep(0)
    gone.cancel()
    pin = await client.control(PinPrefix([1, 2, 3], 60.0))
    assert isinstance(pin, PinInfo)
    assert pin.num_tokens == 3


async def test_a_dying_engine_ends_open_commands(client: EngineClient) -> None:
    failing = asyncio.create_task(run(client, request("bad", CRASH)))
    asked = [asyncio.create_task(client.control(GetPolicy())) for _ in range(100)]
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answer, PolicyInfo | EngineDeadError)
    with pytest.raises(EngineDeadError):
        await failing
    with pytest.raises(EngineDeadError, match="the step failed"):
        await client.control(GetPolicy())


async def test_closing_ends_open_streams(client: EngineClient) -> None:
    waiting = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(EngineDeadError, match="closed"):
        await waiting


def test_importing_the_clients_imports_no_torch(fresh_python: Callable[..., str]) -> None:
    code = "import sys, llmfw.core.client.process, llmfw.core.client.inproc; print('torch' in sys.modules)"
    assert fresh_python(code) == "False\n"
