"""Limits of one tenant: how many requests it may have at once, and how much it may use per minute."""

from __future__ import annotations

import msgspec

MAX_LIMIT = 10**12
"""Largest value of a limit."""


class TenantLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one tenant. Each is an int from 1 to `MAX_LIMIT`, or None.

    Each choice of a client's request counts as a request, as in the queue of the engine.

    Attributes:
        max_requests: number of requests that wait or run at once; None: the value of `--max-tenant-requests`.
        max_queued_requests: number of requests that wait at once; None: no separate limit.
        requests_per_minute: number of requests that may start per minute; None: no limit. After a pause, this
            number of requests may start at once.
        tokens_per_minute: number of tokens per minute, of prompts and of outputs together; None: no limit. A
            request may start while any tokens are left. Tokens that it uses beyond the limit count for the
            next minutes.
    """

    max_requests: int | None = None
    max_queued_requests: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


LIMIT_NAMES = TenantLimits.__struct_fields__
"""Names of the limits."""


def wrong_limit(limits: TenantLimits) -> str | None:
    """Return the name of a limit that is neither None nor an int from 1 to `MAX_LIMIT`; None: all valid."""
    return next((name for name in LIMIT_NAMES if not _is_limit(getattr(limits, name))), None)


def _is_limit(value: object) -> bool:
    return value is None or (type(value) is int and 1 <= value <= MAX_LIMIT)
