"""Bodies and replies of the routes below /admin that start and end the work of the server."""

from __future__ import annotations

from typing import Literal

import msgspec

from .common import Body


class DrainRequest(Body, kw_only=True):
    """Body of POST /admin/drain.

    Attributes:
        timeout_s: longest time to wait for running requests, in seconds; None: the time of `--drain-timeout`.
            The first drain sets it; a later one may not change it.
    """

    timeout_s: float | None = None


class DrainReply(msgspec.Struct, kw_only=True):
    """Reply of POST /admin/drain.

    Attributes:
        num_open: number of requests that run.
        timeout_s: longest time until the requests that still run are ended, in seconds from the start of the
            drain.
    """

    status: str = "draining"
    num_open: int
    timeout_s: float


class SleepRequest(Body, kw_only=True):
    """Body of POST /admin/sleep.

    Attributes:
        timeout_s: longest time to wait for running requests, in seconds; None: the time of `--drain-timeout`.
    """

    timeout_s: float | None = None


class SleepReply(msgspec.Struct, kw_only=True):
    """Reply of POST /admin/sleep and /admin/wake.

    Attributes:
        host_bytes: memory of the engine process, in bytes, that was released (sleep) or taken again (wake); 0
            if the system does not report it.
        device_bytes: the same for a GPU's memory; 0 on a CPU.
    """

    status: Literal["asleep", "awake"]
    host_bytes: int
    device_bytes: int


class WeightsRequest(Body, kw_only=True):
    """Body of POST /admin/weights.

    Attributes:
        path: folder of the checkpoint: below the folder of `--weights-from`, or relative to it.
        wait: whether running requests may end first; if not, they end with an error.
        timeout_s: longest time to wait for running requests, in seconds; None: the time of `--drain-timeout`.
    """

    path: str
    wait: bool = True
    timeout_s: float | None = None


class WeightsReply(msgspec.Struct, kw_only=True):
    """Reply of POST /admin/weights.

    Attributes:
        weight_version: version of the weights that are served now.
        host_bytes: memory of the engine process, in bytes; 0 if the system does not report it.
        device_bytes: the same for a GPU's memory; 0 on a CPU.
    """

    status: str = "loaded"
    weight_version: str
    host_bytes: int
    device_bytes: int


class ReloadRequest(Body, kw_only=True):
    """Body of POST /admin/reload.

    Attributes:
        log_level: least severe level of messages to log from now on; None: it stays.
    """

    log_level: str | None = None


class ReloadReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Reply of POST /admin/reload.

    Attributes:
        reloaded: content of the files that were read again: "API keys", "certificate and key".
        log_level: the new level of the log; missing if it stays.
    """

    reloaded: list[str]
    log_level: str | None = None
