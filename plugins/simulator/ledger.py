"""Records the events of each request of a replay, in one array per kind of event. Times are in seconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Ledger:
    """The recorded events. All attributes but the last are arrays, with one entry per request.

    Attributes:
        arrived, begun, first, last: times of arrival, of the start of the computation, and of the first and
            the last token; NaN if this has not happened yet.
        cached: number of prompt tokens found in the cache when the computation started.
        replica: index of the replica that served the request; -1: the request was refused.
        overtaken: number of later requests that were admitted before the request.
        num_retractions: total number of retractions, of all requests.
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
        """Whether each request was served, not refused: [number of requests]."""
        return self.replica >= 0

    @property
    def gaps(self) -> Floats:
        """Times between consecutive tokens of a request, for all requests, in seconds."""
        return np.concatenate(self._gaps) if self._gaps else np.empty(0)

    def begin(self, number: int, now: float, num_cached: int, overtaken: int) -> None:
        """Record the start of a request's computation. Ignores a second start after a retraction."""
        if np.isnan(self.begun[number]):
            self.begun[number] = now
            self.cached[number] = num_cached
            self.overtaken[number] = overtaken

    def sampled(self, numbers: Ints, now: float) -> None:
        """Record that each of these requests has sampled one token."""
        gaps = now - self.last[numbers]
        self.last[numbers] = now
        is_first = np.isnan(gaps)
        if is_first.any():
            self.first[numbers[is_first]] = now
            gaps = gaps[~is_first]
        self._gaps.append(gaps)
