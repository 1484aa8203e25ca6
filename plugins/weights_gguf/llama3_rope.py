"""Finds the rotary scaling of Llama 3.1 to 3.3 from the factors that llama.cpp's converter has computed.

GGUF has no fields for this scaling. Instead, `rope_freqs.weight` has a divisor for each frequency. Source of
the formula: `_compute_llama3_parameters` of transformers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOW, HIGH = 1.0, 4.0
"""`low_freq_factor` and `high_freq_factor` of all published models."""
ORIGINAL_LENGTH = 8192
"""Context length in tokens before the scaling, of all published models."""


def llama3_scaling(factors: NDArray[np.float32], theta: float) -> dict[str, Any] | None:
    """Return the rotary scaling, as in config.json, that results in these factors; None if no scaling does.

    Args:
        factors: contents of `rope_freqs.weight`: a factor for each of head_dim / 2 frequencies.
        theta: base of the frequencies.
    """
    factor = round(float(factors.max()), 4)  # converters compute in float32
    if not np.allclose(_factors(len(factors), theta, factor), factors, rtol=1e-4, atol=0):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": ORIGINAL_LENGTH,
    }


def _factors(count: int, theta: float, factor: float) -> NDArray[np.float64]:
    """Return the factor of each frequency."""
    lengths = 2 * math.pi * theta ** (np.arange(count) / count)
    smooth = (ORIGINAL_LENGTH / lengths - LOW) / (HIGH - LOW)
    between = 1 / ((1 - smooth) / factor + smooth)
    long = np.where(lengths > ORIGINAL_LENGTH / LOW, factor, between)
    return np.where(lengths < ORIGINAL_LENGTH / HIGH, 1.0, long)
