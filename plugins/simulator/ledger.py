"""The events of each request of a replay, as columns by the request's number. Times are in seconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Ledger:
    """The columns, [number of requests] each. NaN: it did not happen (yet).

    Attributes:
        arrived, begun, first, last: times of arrival, of the first computation, and of the first and the last token.
        cached: prompt tokens found in the cache at the first computation.
        replica: the replica that served it; -1: it was refused.
        overtaken: number of later requests that were admitted before it.
        num_retractions: of all requests together.
    """

    def __init__(self, num_requests: int) -> None:
        self.arrived, self.begun, self.first, self.last = np.full((4, num_requests), np.nan)
        self.cached = np.zeros(num_requests, dtype=np.int64)
        self.replica = np.full(num_requests, -1)
        self.overtaken = np.zeros(num_requests, dtype=np.int64)
        self.num_retractions = 0
        self._gaps: list[Floats] = []

    @property
    def served(self) -> npt.NDArray[np.bool_]:
        """Which requests were not refused."""
        return self.replica >= 0

    @property
    def gaps(self) -> Floats:
        """Seconds from one token to the next, of all requests."""
        return np.concatenate(self._gaps) if self._gaps else np.empty(0)

    def begin(self, number: int, now: float, num_cached: int, overtaken: int) -> None:
        """Record the start of a request's computation. Ignores a second start after a retraction."""
        if np.isnan(self.begun[number]):
            self.begun[number] = now
            self.cached[number] = num_cached
            self.overtaken[number] = overtaken

    def sampled(self, numbers: Ints, now: float) -> None:
        """Record one new token of each of these requests."""
        gaps = now - self.last[numbers]
        self.last[numbers] = now
        is_first = np.isnan(gaps)
        if is_first.any():
            self.first[numbers[is_first]] = now
            gaps = gaps[~is_first]
        self._gaps.append(gaps)
