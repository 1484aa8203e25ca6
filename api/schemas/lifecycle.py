"""Bodies and replies of the routes below /admin that begin and end the work of the server."""

from __future__ import annotations

import msgspec

from .common import Body


class DrainReply(msgspec.Struct, kw_only=True):
    """Reply of POST /admin/drain.

    Attributes:
        num_open: number of requests that run.
        timeout_s: longest time until the remaining ones are ended, in seconds from the start of the drain.
    """

    status: str = "draining"
    num_open: int
    timeout_s: float


class ReloadRequest(Body, kw_only=True):
    """Body of POST /admin/reload.

    Attributes:
        log_level: least severe level of messages to log from now on; None: it stays.
    """

    log_level: str | None = None


class ReloadReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Reply of POST /admin/reload.

    Attributes:
        reloaded: what was read again: "API keys", "certificate and key".
        log_level: the new level of the log; missing if it stays.
    """

    reloaded: list[str]
    log_level: str | None = None
