"""Fits a `Profile` to measured steps.

Minimizes the squares of the relative errors with non-negative coefficients (NNLS; Lawson and Hanson, 1974).
Outliers get little weight (Huber), because other work may have run at the same time. Does not depend on any
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llmfw.core.schedule.plan import BatchPlan

from .profile import Profile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step.

    Attributes:
        tokens: number of tokens computed.
        sequences: number of sequences.
        context: number of tokens whose keys and values are read.
        pairs: number of pairs of a new token and a token that it attends to, in sequences with several new
            tokens; see `profile`.
        seconds: duration.
    """

    tokens: int
    sequences: int
    context: float
    pairs: float
    seconds: float

    @classmethod
    def of(cls, plan: BatchPlan, seconds: float) -> Step:
        """Return a step with a plan's numbers and the given duration."""
        starts, counts = plan.starts, plan.counts
        pairs = (counts * (starts + (counts + 1) / 2))[counts > 1].sum()
        return cls(int(counts.sum()), len(counts), float((starts + counts).sum()), float(pairs), seconds)


def fit_profile(steps: Sequence[Step], name: str, about: str) -> tuple[Profile, float]:
    """Return the profile that fits the steps best, and the median of its relative errors."""
    seconds = np.array([step.seconds for step in steps])
    tokens = np.array([float(step.tokens) for step in steps])
    most = max(2.0, float(tokens.max()))
    knots = np.array([2.0**i for i in range(64) if 2**i <= 0.75 * most] + [most])
    widths = np.diff(knots)
    features = [np.ones(len(steps))]
    features += [np.clip(tokens - low, 0, width) for low, width in zip(knots, widths, strict=False)]
    features += [
        np.array([getattr(step, key) for step in steps], float) for key in ("sequences", "context", "pairs")
    ]
    matrix = np.stack(features, axis=1) / seconds[:, None]
    weights = np.ones(len(steps))
    for _ in range(8):
        found = nnls(matrix * weights[:, None], weights)
        errors = np.abs(matrix @ found - 1)
        weights = np.sqrt(np.minimum(1, 2 * np.median(errors) / np.maximum(errors, 1e-12)))  # Huber's
    rises = found[1 : len(knots)] * widths
    points = list(zip(knots.tolist(), [0.0, *np.cumsum(rises).tolist()], strict=True))
    per_sequence, per_context, per_pair = found[len(knots) :].tolist()
    profile = Profile(
        name=name,
        about=about,
        host=float(found[0]),
        points=points,
        per_sequence=per_sequence,
        per_context=per_context,
        per_pair=per_pair,
    )
    return profile, float(np.median(errors))


def nnls(matrix: Floats, target: Floats) -> Floats:
    """Return the x >= 0 that minimizes the norm of `matrix @ x - target` (non-negative least squares)."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1
    matrix = matrix / scale
    x = np.zeros(matrix.shape[1])
    free = np.zeros(len(x), dtype=bool)  # whether an element may be nonzero
    for _ in range(10 * len(x)):
        gradient = np.where(free, 0, matrix.T @ (target - matrix @ x))
        if gradient.max() <= 1e-10 * np.abs(target).sum():
            break
        free[gradient.argmax()] = True
        while True:
            best = np.zeros(len(x))
            best[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
            negative = free & (best <= 0)
            if not negative.any():
                break
            x = x + (x[negative] / (x[negative] - best[negative])).min() * (best - x)
            free &= x > 1e-12
            x[~free] = 0
        x = best
    return x / scale
