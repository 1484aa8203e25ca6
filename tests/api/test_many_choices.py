"""Clients that ask for many choices leave the places of the engine to the small requests of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from ..doubles.echo_engine import WAIT
from ..doubles.serving import Served, wait_until

PLACES = 64  # of the echo engine


@contextmanager
def endless(server: Served, bodies: list[dict[str, Any]]) -> Iterator[Callable[[], int]]:
    """Send requests that never end, one after another; yield a count of the choices that run, and leave at the end."""

    def running() -> int:
        sent = {request.id for request in list(server.engine.requests) if WAIT in request.prompt}
        return len(sent - set(server.engine.aborted))

    leave = threading.Event()

    def hold(body: dict[str, Any]) -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30):
            leave.wait(60)

    threads = []
    try:
        for body in bodies:
            num = running()
            threads.append(threading.Thread(target=hold, args=({**body, "stream": True},)))
            threads[-1].start()
            wait_until(lambda num=num: running() > num)  # type: ignore[misc]
        yield running
    finally:
        leave.set()
        for thread in threads:
            thread.join()
        wait_until(lambda: not running())


@pytest.mark.parametrize(
    "body", [{"prompt": [WAIT], "n": 128}, {"prompt": [[WAIT]] * 128}], ids=["choices", "prompts"]
)
def test_many_choices_leave_places_for_a_small_request(server: Served, body: dict[str, Any]) -> None:
    """The first request gets three quarters of the places, and the second, beyond them, one."""
    with endless(server, [body, body]) as running:
        wait_until(lambda: running() == PLACES * 3 // 4 + 1)
        assert server.post("/v1/completions", {"prompt": "Hi"}).json()["choices"][0]["text"] == "Hi"
        assert running() == PLACES * 3 // 4 + 1


def test_each_request_gets_one_choice_at_least(server: Served) -> None:
    with endless(server, [{"prompt": [WAIT], "n": 128}]):
        reply = server.post("/v1/completions", {"prompt": "Hi", "n": 20}).json()
    assert [choice["text"] for choice in reply["choices"]] == ["Hi"] * 20
