"""Random requests with ties and extreme values, for comparing a policy with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llmfw.core.interfaces.policy import Running, Waiting

from .policy_views import make_running, make_waiting


def mixed_waiting(rng: np.random.Generator, num: int, fields: Sequence[str]) -> Waiting:
    """Return `num` random waiting requests. Only the column `arrival` has no equal values.

    Args:
        fields: names of request fields that half of the requests set.
    """
    num_tokens = _spread(rng, num)
    return make_waiting(
        num,
        num_tokens=num_tokens,
        num_cached=(num_tokens * rng.choice([0.0, 0.25, 0.99], num)).astype(np.int64),
        overtaken=rng.choice([0, 0, 1, 2, 100, 255, 256, 300], num),
        **_common(rng, num, fields),
    )


def mixed_running(rng: np.random.Generator, num: int, fields: Sequence[str]) -> Running:
    """Return `num` random running requests, like those of `mixed_waiting`."""
    return make_running(
        num,
        prompt_len=rng.choice([1, 10, 10, 500], num),
        num_output=rng.choice([0, 1, 1, 70], num),
        num_held=rng.choice([0, 16, 512], num),
        **_common(rng, num, fields),
    )


def _common(rng: np.random.Generator, num: int, fields: Sequence[str]) -> dict[str, Any]:
    tenant = rng.integers(0, 5, num)
    return {
        "arrival": rng.permutation(num) * 3 + 7,
        "waited": rng.choice([0.0, 0.5, 2.0, 40.0], num) * rng.random(num),
        "time_left": np.where(
            rng.random(num) < 0.7, rng.choice([0.0, 0.5, 0.6, np.inf], num), 60 * rng.random(num)
        ),
        "priority": rng.integers(-2, 3, num),
        "num_to_come": _spread(rng, num),
        "tenant": tenant,
        "served": rng.choice([0.0, 10.0, 5000.0], 5)[tenant],
        "fields": {
            name: np.where(rng.random(num) < 0.5, np.nan, _spread(rng, num).astype(np.float64))
            for name in fields
        },
    }


def _spread(rng: np.random.Generator, num: int) -> npt.NDArray[np.int64]:
    """Return random numbers from 1 to 50,000, in which small numbers occur several times: [num]."""
    found: npt.NDArray[np.int64] = np.exp(rng.random(num) * np.log(50_000)).astype(np.int64)
    return found
