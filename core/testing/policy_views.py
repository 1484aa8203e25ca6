"""What a policy sees, made of a few columns: for tests of policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..policy import Figures, Running, Waiting
from ..request import Request, SamplingParams


def make_waiting(num: int, **columns: Sequence[float]) -> Waiting:
    """Return so many waiting requests, which came one after the other; columns that are given replace the ordinary."""
    ordinary: dict[str, Sequence[float]] = {
        "arrival": range(num),
        "waited": [0.0] * num,
        "time_left": [np.inf] * num,
        "priority": [0] * num,
        "num_tokens": [10] * num,
        "num_cached": [0] * num,
        "num_to_come": [10] * num,
        "tenant": [0] * num,
        "served": [0.0] * num,
        "overtaken": [0] * num,
    }
    return Waiting(**_arrays(num, ordinary, columns, {"waited", "time_left", "served"}), request=_request)


def make_running(num: int, **columns: Sequence[float]) -> Running:
    """Return so many running requests, which came one after the other; columns that are given replace the ordinary."""
    ordinary: dict[str, Sequence[float]] = {
        "arrival": range(num),
        "priority": [0] * num,
        "num_to_come": [10] * num,
        "tenant": [0] * num,
        "served": [0.0] * num,
        "prompt_len": [10] * num,
        "num_output": [0] * num,
        "num_held": [10] * num,
    }
    return Running(**_arrays(num, ordinary, columns, {"served"}), request=_request)


def make_figures(**figures: int) -> Figures:
    """Return figures; those that are not given are those of an engine with much room."""
    ordinary = {
        "num_waiting": 0,
        "num_running": 0,
        "num_places": 128,
        "num_free_tokens": 100_000,
        "num_total_tokens": 100_000,
        "budget": 512,
    }
    return Figures(**{**ordinary, **figures})


def _arrays(
    num: int, ordinary: dict[str, Sequence[float]], given: dict[str, Sequence[float]], floats: set[str]
) -> dict[str, np.ndarray]:
    unknown = given.keys() - ordinary.keys()
    assert not unknown, f"there are no columns {sorted(unknown)}; there are {', '.join(ordinary)}"
    arrays = {}
    for name, values in {**ordinary, **given}.items():
        arrays[name] = np.array(values, dtype=np.float64 if name in floats else np.int64)
        assert arrays[name].shape == (num,), f"{name} has {len(values)} values for {num} requests"
        arrays[name].flags.writeable = False
    return arrays


def _request(place: int) -> Request:
    return Request(id=str(place), prompt=[place], sampling=SamplingParams(max_tokens=10))
