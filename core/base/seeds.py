"""Seeds for requests without a seed, derived by SplitMix64 (Steele, Lea and Flood, 2014), without numpy."""

from __future__ import annotations

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_ALL_BITS = 0xFFFFFFFFFFFFFFFF


def derive_seed(base: int, number: int) -> int:
    """Derive a 63-bit seed from a base seed and a number."""
    return _mix(_mix(base & _ALL_BITS) + number * _GOLDEN) >> 1


def _mix(state: int) -> int:
    """Return the number after SplitMix64's mixing step, in 64 bits."""
    state = (state + _GOLDEN) & _ALL_BITS
    state = ((state ^ (state >> 30)) * _FIRST) & _ALL_BITS
    state = ((state ^ (state >> 27)) * _SECOND) & _ALL_BITS
    return state ^ (state >> 31)
