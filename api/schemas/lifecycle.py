"""Replies of the routes below /admin that begin and end the work of the server."""

from __future__ import annotations

import msgspec


class DrainReply(msgspec.Struct, kw_only=True):
    """Reply of POST /admin/drain.

    Attributes:
        num_open: number of requests that run.
        timeout_s: longest time until the remaining ones are ended, in seconds from the start of the drain.
    """

    status: str = "draining"
    num_open: int
    timeout_s: float
