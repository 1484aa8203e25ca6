"""Features of this CPU, as Linux reports them. Features that Linux does not report count as absent."""

from __future__ import annotations

import functools
from pathlib import Path


def has_bfloat16_pairs() -> bool:
    """Return whether this CPU has AVX512_BF16, which multiplies bfloat16 numbers in pairs."""
    return "avx512_bf16" in _line("flags").split()


def has_fast_bfloat16() -> bool:
    """Return whether torch would find fast bfloat16 instructions; same test as in `core.model.device.devices`."""
    flags = _line("flags").split() or _line("Features").split()
    return "bf16" in flags or {"avx512bw", "avx512dq", "avx512vl"} <= set(flags) or "avx_ne_convert" in flags


def is_intel() -> bool:
    """Return whether this CPU is made by Intel."""
    return _line("vendor_id") == "GenuineIntel"


@functools.cache
def _line(name: str) -> str:
    """Return the first core's value of a field in /proc/cpuinfo; "" if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next(
        (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name),
        "",
    )
