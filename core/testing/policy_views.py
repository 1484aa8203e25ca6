"""Builds the input of scheduling policies for tests, from given columns or at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.interfaces.policy import Figures, Floats, Places, Running, Waiting

Column = Sequence[float] | npt.NDArray[Any]
ColumnsT = TypeVar("ColumnsT", Waiting, Running)
FLOATS = {"waited", "time_left", "served"}


def make_waiting(num: int, *, fields: Mapping[str, Column] | None = None, **columns: Column) -> Waiting:
    """Return `num` waiting requests in order of arrival. Given columns replace the default ones.

    Args:
        fields: request fields, name → number of each request; NaN: the request does not have the field.
    """
    ordinary: dict[str, Column] = {
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
    arrays = _arrays(num, ordinary, columns, FLOATS)
    return Waiting(**arrays, field=_field(num, fields or {}), request=_request_with(fields or {}))


def make_running(num: int, *, fields: Mapping[str, Column] | None = None, **columns: Column) -> Running:
    """Return `num` running requests in order of arrival. The arguments are as in `make_waiting`."""
    ordinary: dict[str, Column] = {
        "arrival": range(num),
        "waited": [0.0] * num,
        "time_left": [np.inf] * num,
        "priority": [0] * num,
        "num_to_come": [10] * num,
        "tenant": [0] * num,
        "served": [0.0] * num,
        "prompt_len": [10] * num,
        "num_output": [0] * num,
        "num_held": [10] * num,
    }
    arrays = _arrays(num, ordinary, columns, FLOATS)
    return Running(**arrays, field=_field(num, fields or {}), request=_request_with(fields or {}))


def make_figures(**figures: int) -> Figures:
    """Return an engine's `Figures`.

    Fields that are not given describe an idle engine with plenty of memory.
    """
    ordinary = {
        "num_waiting": 0,
        "num_running": 0,
        "num_places": 128,
        "num_free_tokens": 100_000,
        "num_total_tokens": 100_000,
        "budget": 512,
    }
    return Figures(**{**ordinary, **figures})


def draw_waiting(rng: np.random.Generator, num: int, fields: Sequence[str] = ()) -> Waiting:
    """Return `num` random waiting requests of five tenants.

    All values in a column differ, except in `tenant` and `served`.

    Args:
        fields: names of the request fields that a policy may ask for. Half of the requests set each of them.
    """
    tenant = rng.integers(0, 5, num)
    tokens = rng.permutation(num) + 10 * num + 10
    return make_waiting(
        num,
        arrival=rng.permutation(num) * 3 + 7,
        waited=rng.permutation(num) / 4,
        time_left=np.where(rng.permutation(num) == 0, np.inf, rng.permutation(num) / 4),
        priority=rng.permutation(num) - num // 2,
        num_tokens=tokens,
        num_cached=rng.permutation(num),
        num_to_come=rng.permutation(num) + 1,
        tenant=tenant,
        served=rng.random(5)[tenant] * 1000,
        overtaken=rng.permutation(num),
        fields=draw_fields(rng, num, fields),
    )


def draw_running(rng: np.random.Generator, num: int, fields: Sequence[str] = ()) -> Running:
    """Return `num` random running requests, like those of `draw_waiting`."""
    tenant = rng.integers(0, 5, num)
    return make_running(
        num,
        arrival=rng.permutation(num) * 3 + 8,
        waited=rng.permutation(num) / 4,
        time_left=np.where(rng.permutation(num) == 0, np.inf, rng.permutation(num) / 4),
        priority=rng.permutation(num) - num // 2,
        num_to_come=rng.permutation(num),
        tenant=tenant,
        served=rng.random(5)[tenant] * 1000,
        prompt_len=rng.permutation(num) + 1,
        num_output=rng.permutation(num),
        num_held=rng.permutation(num),
        fields=draw_fields(rng, num, fields),
    )


def draw_fields(rng: np.random.Generator, num: int, fields: Sequence[str]) -> dict[str, Floats]:
    """Return random numbers of request fields for `num` requests, of which about half set each field."""
    return {
        name: np.where(rng.random(num) < 0.5, np.nan, np.exp(rng.random(num) * np.log(50_000)))
        for name in fields
    }


def with_known_fields(columns: ColumnsT, fields: Sequence[str]) -> ColumnsT:
    """Return the columns with a `field` that raises AssertionError for other names than `fields`."""
    field = columns.field

    def known(name: str) -> Floats:
        assert name in fields, (
            f"the policy asks for the request field {name!r}, which is not among its fields {list(fields)}: is it "
            "misspelt? Name its fields in needs_fields, or in the fixture `fields`"
        )
        return field(name)

    return replace(columns, field=known)


def rearranged(columns: ColumnsT, places: Places) -> ColumnsT:
    """Return a copy in which each column is reordered: entry i comes from index `places[i]`."""
    arrays = {name: column[places] for name, column in columns_of(columns).items()}
    request, field = columns.request, columns.field
    return replace(
        columns,
        **arrays,
        field=lambda name: field(name)[places],
        request=lambda place: request(int(places[place])),
    )


def columns_of(columns: Waiting | Running) -> dict[str, Any]:
    """Return all columns that are arrays, by name."""
    return {
        name: column for name in columns.__slots__ if isinstance(column := getattr(columns, name), np.ndarray)
    }


def _arrays(
    num: int, ordinary: dict[str, Column], given: dict[str, Column], floats: set[str]
) -> dict[str, np.ndarray]:
    unknown = given.keys() - ordinary.keys()
    assert not unknown, f"there are no columns {sorted(unknown)}; there are {', '.join(ordinary)}"
    arrays = {}
    for name, values in {**ordinary, **given}.items():
        arrays[name] = np.array(values, dtype=np.float64 if name in floats else np.int64)
        assert arrays[name].shape == (num,), f"{name} has {len(values)} values for {num} requests"
        arrays[name].flags.writeable = False
    return arrays


def _field(num: int, fields: Mapping[str, Column]) -> Callable[[str], Floats]:
    """Return the function `field` of requests with these request fields."""
    return lambda name: np.array(fields.get(name, [np.nan] * num), dtype=np.float64)


def _request_with(fields: Mapping[str, Column]) -> Callable[[int], Request]:
    """Return the function `request` of requests with these request fields."""

    def request(place: int) -> Request:
        own = {name: values[place] for name, values in fields.items() if not np.isnan(values[place])}
        return Request(id=str(place), prompt=[place], sampling=SamplingParams(max_tokens=10), fields=own)

    return request
