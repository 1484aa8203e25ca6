"""Until BatchPlan has columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


def columns(plan: Any) -> Any:
    if hasattr(plan, "samples"):
        return plan
    parts = plan.sequences
    return SimpleNamespace(
        raw=plan,
        sequences=[p.seq for p in parts],
        starts=np.array([p.start for p in parts], dtype=np.int64),
        counts=np.array([p.count for p in parts], dtype=np.int64),
        samples=np.array([p.samples for p in parts], dtype=bool),
    )
