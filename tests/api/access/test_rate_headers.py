"""How replies write the time until a rate is whole again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from llmfw.api.access.rate_headers import with_rate_headers
from llmfw.api.access.tenant_load import TenantLoad
from llmfw.core.interfaces.tenant_limits import TenantLimits


@pytest.mark.parametrize(
    ("used", "written"),
    [
        (0, "0s"),
        (1, "60ms"),
        (500, "30s"),
        (144, "8.64s"),
        (1000, "1m0s"),
        (6025, "6m2s"),
        (120_010, "2h0m1s"),
    ],
)
def test_durations_are_written_as_openai_does(used: int, written: str) -> None:
    load, sent = TenantLoad("ann", lambda: TenantLimits(tokens_per_minute=1000), lambda: 0.0), list[Any]()
    load.note_output(used)

    async def send(message: Any) -> None:
        sent.append(message)

    start: Any = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    asyncio.run(with_rate_headers(send, load, "/v1/completions")(start))
    assert sent[0]["headers"][0] == (b"a", b"b")
    assert dict(sent[0]["headers"])[b"x-ratelimit-reset-tokens"] == written.encode()
