"""The interface of a scheduling policy, which decides the order of admission and of retraction.

A policy is pure: it does not change its input, keeps no state between calls, and returns the same answer for
the same input. The input has one column (a numpy array) per property, so that a policy can order thousands of
requests in less than a millisecond. A request is identified by its index in the columns. The scheduler
decides how many requests are admitted, from the free memory and the token budget of the step.

A faulty policy fails no request: if a policy raises or returns an invalid answer, llmfw logs that once with
the name of the plugin. From then on, it admits requests in order of arrival, and retracts them in the default
order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from llmfw.core.base.request import Request

Places = npt.NDArray[np.intp]
"""Indices into the columns, each of which identifies a request."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The W waiting requests, unordered. Every column is [W] and read only.

    Attributes:
        arrival: position in the order of arrival; smaller is earlier. A retracted request keeps its position.
        waited: seconds since the request arrived.
        time_left: seconds until the request's timeout; infinity if it has none.
        priority: priority from the client; larger is more urgent, 0 is ordinary.
        num_tokens: number of tokens of the prompt, and of the output before a retraction.
        num_cached: number of leading tokens in the prefix cache.
        num_to_come: number of output tokens that the request may still generate.
        tenant: number that identifies the tenant (API key or user) of the request.
        served: tokens computed for the request's tenant (see `Tenants`): the virtual counter of fair
            scheduling.
        overtaken: number of later requests that were admitted before this one.
        field: function that returns each request's number for a request field, given the field's name: [W].
            NaN if the request does not set the field, or its value is not a number. See `RequestField`.
        request: function that returns a copy of the request at an index.
    """

    arrival: Ints
    waited: Floats
    time_left: Floats
    priority: Ints
    num_tokens: Ints
    num_cached: Ints
    num_to_come: Ints
    tenant: Ints
    served: Floats
    overtaken: Ints
    field: Callable[[str], Floats]
    request: Callable[[int], Request]

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Running:
    """The R running requests, unordered. Every column is [R] and read only.

    Attributes:
        arrival, waited, time_left, priority, num_to_come, tenant, served, field, request: as in `Waiting`.
            `waited` counts from the arrival, not from the admission.
        prompt_len: number of prompt tokens.
        num_output: number of generated tokens.
        num_held: capacity in tokens of the pages that only this request holds. A retraction would free these
            pages.
    """

    arrival: Ints
    waited: Floats
    time_left: Floats
    priority: Ints
    num_to_come: Ints
    tenant: Ints
    served: Floats
    prompt_len: Ints
    num_output: Ints
    num_held: Ints
    field: Callable[[str], Floats]
    request: Callable[[int], Request]

    def __len__(self) -> int:
        """Return the number of running requests."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of the page pool and the queue.

    Attributes:
        num_waiting, num_running: number of waiting requests, and of running ones.
        num_places: number of further requests that may run. When live requests are ordered, this counts the
            rows of deferrable requests as free, because live requests may take over these rows.
        num_free_tokens: capacity in tokens of the pages that are free or held only by the prefix cache.
        num_total_tokens: capacity in tokens of all pages.
        budget: number of prompt tokens that the step may still compute.
    """

    num_waiting: int
    num_running: int
    num_places: int
    num_free_tokens: int
    num_total_tokens: int
    budget: int


FEW = 256
"""Number of requests up to which `numpy.lexsort` is the fastest way to sort them."""


class Ordering(NamedTuple):
    """A policy's answer.

    Attributes:
        places: the index of every waiting request, exactly once, in the order of admission: [W].
        num_held: number of requests at the end of `places` that are not admitted in this step. (If no request
            runs, the first one is still admitted, so that the engine makes progress.) Do not hold a request
            that has waited long: on a busy server, some request always runs, so a held request might wait
            forever.
    """

    places: Places
    num_held: int = 0

    @classmethod
    def by(cls, *keys: npt.NDArray[np.generic]) -> Ordering:
        """Return the ordering by ascending keys. The first key counts most; each further key breaks ties.

        For thousands of requests, this is several times faster than `numpy.lexsort`, whose last key counts
        most.
        """
        return cls(_sorted_by(keys) if len(keys[0]) > FEW else np.lexsort(keys[::-1]))


class SchedulePolicy(ABC):
    """Orders requests.

    llmfw builds a policy once, and calls `order` in each step in which a waiting request could be admitted.

    Attributes:
        options: the policy's own options, an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o policy.key=value`. A policy with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def preempts(self) -> bool:
        """Whether the policy overrides `give_way`. The scheduler calls `give_way` only if this is true."""
        return type(self).give_way is not SchedulePolicy.give_way

    @abstractmethod
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        """Return the order in which to admit the waiting requests."""

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        """Return the order in which to retract running requests when the page pool is full.

        The first request in the order is retracted first; the last one is never retracted. By default,
        requests with the fewest output tokens come first, and among equals the request with the longest
        prompt: its retraction loses the least work and frees the most pages.
        """
        places: Places = np.lexsort((-running.arrival, -running.prompt_len, running.num_output))
        return places

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        """Return the running requests that may be retracted to admit a waiting request now.

        Called only if the first waiting request in the ordering cannot be admitted for lack of rows or pages.
        The scheduler retracts requests in the returned order until the waiting request fits. If it would not
        fit even without all of them, the scheduler retracts none. By default, returns no request.

        Args:
            place: index, in `waiting`, of the request to admit.
        """
        return np.empty(0, dtype=np.intp)


def _sorted_by(keys: Sequence[npt.NDArray[np.generic]]) -> Places:
    """Return the indices that sort by `keys`. The first key counts most; ties keep their order.

    Packs the keys and the index of each request into one int64, and sorts the packed numbers. If the keys do
    not fit into an int64, uses `numpy.lexsort`.
    """
    packed, span = np.zeros(len(keys[0]), dtype=np.int64), 1
    for key in (*keys, np.arange(len(packed))):
        digits = key.astype(np.int64) if key.dtype.kind == "i" else _ranks(key)
        low = int(digits.min())
        size = int(digits.max()) - low + 1
        span *= size
        if span >= 2**63:
            places: Places = np.lexsort(keys[::-1])
            return places
        packed *= size
        packed += digits - low
    return packed.argsort()


def _ranks(key: npt.NDArray[np.generic]) -> Ints:
    """Return the rank of each element of a key: the number of distinct smaller values."""
    places = key.argsort()
    in_order = key[places]
    ranks = np.zeros(len(key), dtype=np.int64)
    ranks[places[1:]] = np.cumsum(in_order[1:] != in_order[:-1])
    return ranks
