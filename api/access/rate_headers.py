"""Adds headers to replies with the amounts left of a tenant's rates, as in OpenAI's or Anthropic's API.

Names and formats: https://platform.openai.com/docs/guides/rate-limits and
https://docs.anthropic.com/en/api/rate-limits.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Awaitable

from litestar.types import Message, Send

from .tenant_load import Rate, TenantLoad

MINUTE_S, HOUR_S = 60, 3600


def with_rate_headers(send: Send, load: TenantLoad, path: str) -> Send:
    """Return a `send` that adds headers with the tenant's current rates to the start of a reply."""
    form = _anthropic_headers if path.startswith("/v1/messages") else _openai_headers

    # A plain function, not a coroutine, because each event of a stream passes through it.
    def sending(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            added = [header for rate in load.rates() for header in form(rate)]
            message["headers"] = [*message.get("headers", ()), *added]
        return send(message)

    return sending


def _openai_headers(rate: Rate) -> list[tuple[bytes, bytes]]:
    return [
        (f"x-ratelimit-limit-{rate.what}".encode(), b"%d" % rate.per_minute),
        (f"x-ratelimit-remaining-{rate.what}".encode(), b"%d" % max(0, math.floor(rate.left))),
        (f"x-ratelimit-reset-{rate.what}".encode(), _duration(rate.full_in_s).encode()),
    ]


def _anthropic_headers(rate: Rate) -> list[tuple[bytes, bytes]]:
    full_at = datetime.datetime.fromtimestamp(math.ceil(time.time() + rate.full_in_s), datetime.UTC)
    prefix = f"anthropic-ratelimit-{rate.what}"
    return [
        (f"{prefix}-limit".encode(), b"%d" % rate.per_minute),
        (f"{prefix}-remaining".encode(), b"%d" % max(0, math.floor(rate.left))),
        (f"{prefix}-reset".encode(), full_at.strftime("%Y-%m-%dT%H:%M:%SZ").encode()),
    ]


def _duration(seconds: float) -> str:
    """Return a time as OpenAI writes it: "0s", "12ms", "8.64s", "6m0s", "2h0m1s"."""
    milliseconds = math.ceil(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < MINUTE_S * 1000:
        return f"{milliseconds / 1000:g}s"
    whole = math.ceil(seconds)
    hours, minutes = whole // HOUR_S, whole % HOUR_S // MINUTE_S
    return f"{f'{hours}h' if hours else ''}{minutes}m{whole % MINUTE_S}s"
