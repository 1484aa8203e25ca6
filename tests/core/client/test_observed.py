"""What is reported of each request: a start, at most one first token, and exactly one end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from llmfw.core.base.errors import EngineDeadError, EngineError, RequestError
from llmfw.core.base.request import EmbedRequest, FinishReason, Request, SamplingParams, TokenEvent
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.client.observed import ObservedEngineClient, started_event
from llmfw.core.interfaces.observer import RequestEnded, RequestEvent, RequestFirstToken, RequestStarted

from ...doubles.echo_engine import CRASH, EOS, FAIL, REFUSE, WAIT, EchoEngine
from ...doubles.request_watch import KeepingWatch


class Seen:
    """A client of the echo engine, and what it reports."""

    def __init__(self, client: InprocEngineClient) -> None:
        self.events: list[RequestEvent] = []
        self.client = ObservedEngineClient(client, self.events.append)

    async def run(self, prompt: list[int], id: str = "a", take: int | None = None) -> RequestEnded:
        """Run a request, at most to its event number `take`; return its end."""
        request = Request(
            id=id, prompt=prompt, sampling=SamplingParams(max_tokens=9), eos_token_ids=(EOS,), tenant="bob"
        )
        async with contextlib.aclosing(self.client.generate(request)) as events:
            async for _ in events:
                if take is not None and (take := take - 1) == 0:
                    break
        return self.end

    @property
    def end(self) -> RequestEnded:
        """The only end that was reported, after everything else."""
        (end,) = [event for event in self.events if isinstance(event, RequestEnded)]
        assert self.events[-1] is end
        return end


@pytest_asyncio.fixture
async def seen() -> AsyncIterator[Seen]:
    client = InprocEngineClient(EchoEngine())
    await client.start()
    yield Seen(client)
    await client.close()


async def test_a_request_starts_answers_and_ends(seen: Seen) -> None:
    end = await seen.run([5, 6, 7])
    assert [type(event) for event in seen.events] == [RequestStarted, RequestFirstToken, RequestEnded]
    start = end.started
    assert (start.id, start.task, start.tenant, start.prompt_tokens, start.max_tokens) == (
        "a",
        "generate",
        "bob",
        3,
        9,
    )
    assert (end.finish, end.output_tokens, end.error_kind) == ("stop", 4, "")
    assert end.first_token_s is not None
    assert 0 <= end.first_token_s <= end.duration_s


async def test_a_watch_is_not_called_for_each_token(seen: Seen) -> None:
    """It is told of the first event with tokens, of the last one, and of the number of all tokens."""
    watch = KeepingWatch()
    request = Request(id="a", prompt=[5] * 8, sampling=SamplingParams(max_tokens=20), eos_token_ids=(EOS,))
    events = [event async for event in seen.client._client.watched(request, watch)]
    assert watch.noted == [events[0], events[-1]]
    assert watch.num_tokens == len(events) == 9


async def test_a_closed_reader_aborts(seen: Seen) -> None:
    end = await seen.run([5] * 8, take=2)
    assert (end.finish, end.output_tokens) == ("abort", 2)


async def test_a_noted_end_is_no_abort(seen: Seen) -> None:
    request = Request(id="a", prompt=[5] * 8, sampling=SamplingParams(max_tokens=20))
    async with contextlib.aclosing(seen.client.generate(request)) as events:
        await anext(events)
        seen.client.note_end("a", FinishReason.STOP)
        seen.client.note_end("another", FinishReason.LENGTH)
    assert seen.end.finish == "stop"


async def test_a_cancelled_task_aborts(seen: Seen) -> None:
    task = asyncio.create_task(seen.run([WAIT]))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task])
    assert (seen.end.finish, seen.end.first_token_s, seen.end.output_tokens) == ("abort", None, 0)


@pytest.mark.parametrize(
    ("token", "kind"), [(REFUSE, RequestError), (FAIL, EngineError), (CRASH, EngineDeadError)]
)
async def test_an_error_is_named(seen: Seen, token: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        await seen.run([token])
    end = seen.end
    assert (end.finish, end.error_kind, end.error) == (
        "error",
        type(raised.value).__name__,
        str(raised.value),
    )


async def test_a_repeated_id_ends_twice(seen: Seen) -> None:
    """The second request is refused, and the first one's end is still its own."""
    first = asyncio.create_task(seen.run([WAIT]))
    await asyncio.sleep(0.05)
    with pytest.raises(RequestError, match="runs already"):
        await seen.run([5])
    seen.client.note_end("a", FinishReason.LENGTH)
    first.cancel()
    await asyncio.wait([first])
    ends = [event.finish for event in seen.events if isinstance(event, RequestEnded)]
    assert ends == ["error", "length"]


async def test_restarts_are_counted() -> None:
    class Restarted(InprocEngineClient):
        async def generate(self, request: Request) -> AsyncIterator[TokenEvent]:  # type: ignore[override]
            yield TokenEvent(request.id, [1, 2], cached_tokens=5, queued_us=7)
            yield TokenEvent(request.id, [], restarted=True)
            yield TokenEvent(request.id, [3], FinishReason.LENGTH, cached_tokens=6, queued_us=2_000_000)

    seen = Seen(Restarted(EchoEngine()))
    end = await seen.run([5])
    assert (end.finish, end.restarts, end.output_tokens) == ("length", 1, 1)
    assert (end.cached_tokens, end.queued_s) == (6, 2.0)
    assert sum(isinstance(event, RequestFirstToken) for event in seen.events) == 2


async def test_an_embedding_has_a_start_and_an_end() -> None:
    class Embeds(InprocEngineClient):
        async def embed(self, request: EmbedRequest) -> bytes:
            return b""

    seen = Seen(Embeds(EchoEngine()))
    await seen.client.embed(EmbedRequest(id="e", prompts=[[1, 2], [3]], tenant="bob"))
    assert (seen.end.finish, seen.end.started.task, seen.end.started.prompt_tokens) == ("stop", "embed", 3)
    assert len(seen.events) == 2


def test_the_start_has_the_request_s_fields() -> None:
    request = Request(id="a", prompt=[1], sampling=SamplingParams(), fields={"speed": 3})
    assert started_event(request).fields == {"speed": 3}
    assert started_event(EmbedRequest(id="a", prompts=[[1]])).fields == {}
