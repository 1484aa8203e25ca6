"""The interface of a scheduling policy: who is admitted first, who waits, who is retracted first.

A policy is pure: it changes nothing that it is given, keeps nothing from one call to the next, and the same input
gives the same answer. It sees figures, one column (a numpy array) for each, so that thousands of requests are ordered
in less than a millisecond; a request is known by its place in the columns. It does not decide how many are admitted:
the scheduler does, by the memory and the token budget of the step.

What a policy does wrong costs no request: where it raises, or leaves out or invents a place, that is logged once with
its plugin's name, and first come, first served goes on in its stead.
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
"""Places in the columns."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The requests that wait, in no order: W of them. Every column is [W], read only.

    Attributes:
        arrival: position in the order of arrival; smaller came earlier. A retracted request keeps its own.
        waited: seconds since the request came.
        time_left: seconds until its deadline; infinity without one.
        priority: as asked by the client; larger is more urgent, 0 is ordinary.
        num_tokens: prompt, and what was generated before a retraction.
        num_cached: of these, how many leading ones are in the prefix cache.
        num_to_come: output tokens that it may still generate.
        tenant: number of the API key or user that it belongs to.
        served: what its tenant has had so far, in tokens (see `Tenants`): the virtual counter of fair scheduling.
        overtaken: how many requests that came later were admitted before it.
        request: returns the whole request at a place.
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
    request: Callable[[int], Request]

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Running:
    """The requests that run, in no order: R of them. Every column is [R], read only.

    Attributes:
        arrival, priority, num_to_come, tenant, served, request: as of `Waiting`.
        prompt_len: tokens of the prompt.
        num_output: tokens generated so far.
        num_held: tokens' worth of pages that only this request holds, and that its retraction would free.
    """

    arrival: Ints
    priority: Ints
    num_to_come: Ints
    tenant: Ints
    served: Floats
    prompt_len: Ints
    num_output: Ints
    num_held: Ints
    request: Callable[[int], Request]

    def __len__(self) -> int:
        """Return how many run."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of pool and queue.

    Attributes:
        num_waiting, num_running: requests.
        num_places: at most so many more may run. Live ones may take the places of deferrable ones.
        num_free_tokens: tokens for which there are pages, free or taken by nothing but the prefix cache.
        num_total_tokens: tokens that all pages hold.
        budget: prompt tokens that the step may still compute.
    """

    num_waiting: int
    num_running: int
    num_places: int
    num_free_tokens: int
    num_total_tokens: int
    budget: int


FEW = 256
"""So few are ordered fastest in the plainest way."""


class Order(NamedTuple):
    """A policy's answer.

    Attributes:
        places: all places of the waiting requests, each exactly once, first to be admitted first: [W].
        num_held: the last so many of these are not admitted in this step. (Where nothing runs, the first one is
            admitted all the same: somebody has to go on.)
    """

    places: Places
    num_held: int = 0

    @classmethod
    def by(cls, *keys: npt.NDArray[np.generic]) -> Order:
        """Return the order by the first key, smallest first; equals by the next one, and so on.

        Thousands are ordered several times faster than by `numpy.lexsort`, which gives the same.
        """
        return cls(_sorted_by(keys) if len(keys[0]) > FEW else np.lexsort(keys[::-1]))


class SchedulePolicy(ABC):
    """Orders requests. Built once; asked in each step in which a request waits and one could be admitted.

    Attributes:
        options: what it was built with.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o policy.key=value`. A policy with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def preempts(self) -> bool:
        """Whether `give_way` is to be asked: where it is this policy's own."""
        return type(self).give_way is not SchedulePolicy.give_way

    @abstractmethod
    def order(self, waiting: Waiting, figures: Figures) -> Order:
        """Return in which order the waiting requests are admitted."""

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        """Return in which order running requests are retracted when the pool is full, first to go first.

        Here: those with the fewest output tokens, and of these the longest prompt. The least work is lost for the most
        room. The last one stays in any case.
        """
        places: Places = np.lexsort((-running.arrival, -running.prompt_len, running.num_output))
        return places

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        """Return which running requests may be retracted to admit the first of the order now, first to go first.

        Asked only where there is no place or no room for the waiting request at `place`. As many are retracted as
        needed, and none where all of them were not enough. Here: none.
        """
        return np.empty(0, dtype=np.intp)


def _sorted_by(keys: Sequence[npt.NDArray[np.generic]]) -> Places:
    """Return what lexsort would: the keys, and the places last, are packed into one integer, and that is sorted."""
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
    """Return for each value how many different ones are smaller."""
    places = key.argsort()
    in_order = key[places]
    ranks = np.zeros(len(key), dtype=np.int64)
    ranks[places[1:]] = np.cumsum(in_order[1:] != in_order[:-1])
    return ranks
