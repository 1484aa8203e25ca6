"""A reply has the router's estimate if its request asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.api.app.router_estimate import add_router_estimate
from llmfw.core.client.whole_request import open_whole_request, whole_request

ASKS = [(b"host", b"x"), (b"llmfw-router-estimate", b"1")]


def headers(asked: list[tuple[bytes, bytes]], estimate: float | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of a reply that has one of its own."""
    message: Any = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    scope: Any = {"type": "http", "headers": asked}
    with whole_request():
        whole = open_whole_request()
        assert whole is not None
        if estimate is not None:
            whole.note_estimate(estimate)
        add_router_estimate(scope, message)
    found: list[tuple[bytes, bytes]] = message["headers"]
    return found


def test_who_asks_gets_the_estimate() -> None:
    assert headers(ASKS, 0.25) == [(b"a", b"b"), (b"llmfw-router-estimate", b"0.2500")]
    assert headers(ASKS, 0.0)[1:] == [(b"llmfw-router-estimate", b"0.0000")]


@pytest.mark.parametrize(("asked", "estimate"), [(ASKS[:1], 0.25), (ASKS, None), ([], None)])
def test_others_get_none(asked: list[tuple[bytes, bytes]], estimate: float | None) -> None:
    assert headers(asked, estimate) == [(b"a", b"b")]


def test_requests_outside_are_left_alone() -> None:
    message: Any = {"headers": []}
    scope: Any = {"headers": ASKS}
    add_router_estimate(scope, message)
    assert message == {"headers": []}
