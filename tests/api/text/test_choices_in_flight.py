"""Thousands of choices of one request leave the engine room for others, and all are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from llmfw.api.text.choices_in_flight import MAX_UNANSWERED_TOKENS, ChoicesInFlight
from llmfw.api.text.engine_places import EnginePlaces
from llmfw.core.base.errors import DeadlineError, OverloadedError, RateLimitError, TenantLimitError
from llmfw.core.base.request import FinishReason, Request, SamplingParams, TokenEvent


class CountingClient:
    """Answers each request with one token and its end; counts how many run at once.

    Args:
        refusals: errors for the next requests; None accepts one.
    """

    def __init__(self, refusals: Sequence[Exception | None] = (), delay_s: float = 0.0) -> None:
        self.num_running = self.most = 0
        self.sent: list[Request] = []
        self._refusals = list(refusals)
        self._delay_s = delay_s
        self.wait_s = 0.0

    def seconds_until(self, request: Request) -> float:
        return self.wait_s

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        self.sent.append(request)
        if self._refusals and (error := self._refusals.pop(0)) is not None:
            raise error
        self.num_running += 1
        self.most = max(self.most, self.num_running)
        try:
            await asyncio.sleep(self._delay_s)
            yield TokenEvent(request.id, [1])
            await asyncio.sleep(self._delay_s)
            yield TokenEvent(request.id, [2], FinishReason.STOP)
        finally:
            self.num_running -= 1


def choices(num: int, prompts: Sequence[list[int]] = ([1],), timeout_s: float | None = None) -> list[Any]:
    def request(i: int) -> Request:
        prompt = prompts[i % len(prompts)]
        return Request(id=str(i), prompt=prompt, sampling=SamplingParams(), timeout_s=timeout_s)

    return [SimpleNamespace(index=i, request=request(i)) for i in range(num)]


async def ended(flight: ChoicesInFlight) -> set[int]:
    """Run to the end; return the indexes of the choices that had all of their events."""
    found = set()
    while flight.is_open:
        choice, item = await flight.next()
        if isinstance(item, Exception):
            raise item
        if item is not None and item.finish_reason is not None:
            found.add(choice.index)
    return found


async def test_a_quarter_of_the_places_stays_free() -> None:
    client = CountingClient()
    flight = ChoicesInFlight(client, choices(100), EnginePlaces(16))  # type: ignore[arg-type]
    assert await ended(flight) == set(range(100))
    assert client.most == 12


async def test_several_requests_share_the_places() -> None:
    client, places = CountingClient(delay_s=0.001), EnginePlaces(16)
    flights = [ChoicesInFlight(client, choices(40), places) for _ in range(3)]  # type: ignore[arg-type]
    assert [len(flight.first) for flight in flights] == [12, 1, 1]
    assert [len(found) for found in await asyncio.gather(*map(ended, flights))] == [40, 40, 40]
    assert client.most <= 14
    assert places.num_held == 0


async def test_more_requests_than_places_still_finish() -> None:
    places = EnginePlaces(2)
    flights = [ChoicesInFlight(CountingClient(), choices(3), places) for _ in range(5)]  # type: ignore[arg-type]
    assert [len(found) for found in await asyncio.gather(*map(ended, flights))] == [3] * 5


async def test_a_closed_request_leaves_its_places() -> None:
    client, places = CountingClient(delay_s=10), EnginePlaces(16)
    flights = [ChoicesInFlight(client, choices(40), places) for _ in range(2)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await flights[0].close()
    assert client.num_running == places.num_held == 12
    await flights[1].close()
    assert client.num_running == places.num_held == 0


async def test_long_prompts_are_sent_a_few_at_once() -> None:
    prompts = [[i] * (MAX_UNANSWERED_TOKENS // 2) for i in range(6)]
    client = CountingClient(delay_s=0.01)
    flight = ChoicesInFlight(client, choices(6, prompts), EnginePlaces(100))  # type: ignore[arg-type]
    assert len(flight.first) == 2
    assert len(await ended(flight)) == 6


async def test_a_shared_prompt_counts_once() -> None:
    flight = ChoicesInFlight(
        CountingClient(),  # type: ignore[arg-type]
        choices(10, [[1] * MAX_UNANSWERED_TOKENS]),
        EnginePlaces(100),
    )
    assert len(flight.first) == 10
    await flight.close()


async def test_the_first_choice_s_refusal_is_raised() -> None:
    flight = ChoicesInFlight(CountingClient([OverloadedError("full")]), choices(3), EnginePlaces(4))  # type: ignore[arg-type]
    with pytest.raises(OverloadedError):
        await ended(flight)
    await flight.close()


async def test_later_refused_choices_are_sent_again() -> None:
    refusals = [
        None,
        OverloadedError("full", retry_after_s=0.001),
        OverloadedError("full", retry_after_s=0.001),
    ]
    client = CountingClient(refusals)
    assert len(await ended(ChoicesInFlight(client, choices(3), EnginePlaces(1)))) == 3  # type: ignore[arg-type]
    assert len(client.sent) == 5


async def test_a_choice_s_end_wakes_refused_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.api.text.choices_in_flight.MAX_RETRY_S", 600.0)
    refusal = TenantLimitError("at most 1 may run", retry_after_s=600.0)
    client = CountingClient([None, refusal, refusal, None, None], delay_s=0.001)
    async with asyncio.timeout(30):
        flight = ChoicesInFlight(client, choices(3), EnginePlaces(8))  # type: ignore[arg-type]
        assert len(await ended(flight)) == 3
    assert len(client.sent) == 5


async def test_a_timeout_counts_from_the_first_choice() -> None:
    client = CountingClient(delay_s=0.02)
    flight = ChoicesInFlight(client, choices(50, timeout_s=0.1), EnginePlaces(1))  # type: ignore[arg-type]
    with pytest.raises(DeadlineError, match=r"timeout of 0\.1 s"):
        await ended(flight)
    assert client.sent[0].timeout_s == 0.1
    assert (client.sent[1].timeout_s or 1.0) < 0.09
    await flight.close()


async def test_closing_aborts_running_choices() -> None:
    client = CountingClient(delay_s=10)
    flight = ChoicesInFlight(client, choices(50), EnginePlaces(8))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert client.num_running == 6
    await flight.close()
    await asyncio.sleep(0)
    assert client.num_running == 0
    assert len(client.sent) == 6


async def test_a_finished_choice_frees_its_place() -> None:
    client = CountingClient(delay_s=0.01)
    flight = ChoicesInFlight(client, choices(3), EnginePlaces(1))  # type: ignore[arg-type]
    choice, _ = await flight.next()
    flight.end(choice)
    assert (await flight.next())[0].index == 1
    await flight.close()


async def test_each_choice_runs_for_its_own_request() -> None:
    """Also if a place that another request gives back is what sends it."""
    whose = ContextVar("whose", default="")
    seen: list[tuple[str, str]] = []

    class NotingClient(CountingClient):
        async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
            seen.append((whose.get(), request.id))
            async for event in super().generate(request):
                yield event

    client, places = NotingClient(), EnginePlaces(2)

    async def request(name: str) -> None:
        whose.set(name)
        own = choices(5)
        for choice in own:
            choice.request = msgspec.structs.replace(choice.request, id=name)
        await ended(ChoicesInFlight(client, own, places))  # type: ignore[arg-type]

    await asyncio.gather(*map(request, "ab"))
    assert seen
    assert all(found == expected for found, expected in seen)


async def test_choices_waiting_for_a_rate_hold_no_place() -> None:
    client, places = CountingClient(delay_s=0.001), EnginePlaces(16)
    slow = ChoicesInFlight(client, choices(40), places)  # type: ignore[arg-type]
    await slow.next()
    client.wait_s = 0.02
    found = asyncio.create_task(ended(slow))
    await asyncio.sleep(0.015)
    assert (places.num_held, len(client.sent)) == (0, 12)
    client.wait_s = 0.0
    assert len(await ended(ChoicesInFlight(client, choices(20), places))) == 20  # type: ignore[arg-type]
    assert len(await found | {0}) == 40
    assert len(client.sent) == 60  # nothing was refused


async def test_a_refused_choice_holds_no_place() -> None:
    client, places = CountingClient([None, RateLimitError("used", retry_after_s=9)]), EnginePlaces(4)
    flight = ChoicesInFlight(client, choices(3), places)  # type: ignore[arg-type]
    while (await flight.next())[1] is not None:
        pass
    await asyncio.sleep(0)
    assert flight.is_open
    assert places.num_held <= 1  # the third choice, which was sent before the refusal
    await flight.close()


async def test_a_timeout_ends_the_wait_for_a_rate() -> None:
    client = CountingClient()
    flight = ChoicesInFlight(client, choices(3, timeout_s=0.05), EnginePlaces(1))  # type: ignore[arg-type]
    await flight.next()
    client.wait_s = 0.01
    with pytest.raises(DeadlineError):
        await ended(flight)
    await flight.close()
