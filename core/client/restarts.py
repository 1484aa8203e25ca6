"""Decides whether and when to restart an engine that has died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.engine_info import EngineInfo

HOUR_S = 3600.0
MOST_S = 30.0
MAX_FAILED_STARTS = 5  # in a row; after that, the cause is not a request
MAY_DIFFER = {"max_total_tokens": 0, "max_running_requests": 0, "policy": "", "adapters": ()}
"""Fields of EngineInfo that a restart may change."""


class RestartPolicy(msgspec.Struct, frozen=True):
    """The settings `--restart` and `--max-restarts-per-hour`.

    Attributes:
        is_on: whether a dead engine is restarted.
        max_per_hour: maximum number of restarts within any hour.
    """

    is_on: bool = True
    max_per_hour: int = 30

    @classmethod
    def of(cls, config: ServerConfig) -> RestartPolicy:
        """Return the policy that a server's settings define."""
        return cls(config.restart == "on-failure", config.max_restarts_per_hour)


class Restarts:
    """Counts the restarts of one engine, limits them, and computes the delay before each.

    The delay grows from restart to restart (0, 1, 2, 4, … 30 s). The delay is 0 again once the engine has
    answered a request.

    Args:
        policy: limits of the restarts.
        clock: monotonic clock in seconds.

    Attributes:
        total: number of restarts.
    """

    def __init__(self, policy: RestartPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._off = None if policy.is_on else "--restart is never"
        self._policy = policy
        self._clock = clock
        self._times: deque[float] = deque()
        self._in_vain = 0  # restarts since a request was answered
        self._failed_starts = 0  # in a row

    @property
    def is_on(self) -> bool:
        """Whether restarts are on. `--restart never` and `stop` turn them off."""
        return self._off is None

    def stop(self) -> None:
        """Allow no further restarts."""
        self._off = "the server is ending"

    def reason_against(self) -> str | None:
        """Return the reason why the engine must not be restarted now; None if it may be restarted."""
        if self._off is not None:
            return self._off
        while self._times and self._times[0] <= self._clock() - HOUR_S:
            self._times.popleft()
        if len(self._times) >= self._policy.max_per_hour:
            return (
                f"it was restarted {len(self._times)} times within the last hour, "
                f"and --max-restarts-per-hour is {self._policy.max_per_hour}"
            )
        if self._failed_starts >= MAX_FAILED_STARTS:
            return f"it failed to start {self._failed_starts} times in a row"
        return None

    def begin(self) -> float:
        """Count a restart; return the seconds to wait before it."""
        delay = min(MOST_S, 2.0 ** (self._in_vain - 1)) if self._in_vain else 0.0
        self.total += 1
        self._in_vain += 1
        self._times.append(self._clock())
        return delay

    def note_start(self, *, failed: bool) -> None:
        """Record whether a start of the engine failed."""
        self._failed_starts = self._failed_starts + 1 if failed else 0

    def note_answer(self) -> None:
        """Record that the engine has answered a request."""
        self._in_vain = 0


def essence_of(info: EngineInfo) -> EngineInfo:
    """Return the description without the fields that a restart may change, for comparison."""
    return msgspec.structs.replace(info, **MAY_DIFFER)
