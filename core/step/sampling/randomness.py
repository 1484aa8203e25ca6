"""Random numbers that depend only on a seed and a position.

Numbers are mixed as in SplitMix64 (Steele, Lea and Flood, 2014), which Java's SplittableRandom uses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def uniform(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a uniformly distributed number in [0, 1) for each pair of seed and position: [N]."""
    mixed = _mix(_mix(seeds) + positions.astype(np.uint64) * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the numbers after SplitMix64's mixing step. The products wrap around intentionally."""
    state = state + _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
