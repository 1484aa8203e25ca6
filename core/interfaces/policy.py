"""The interface of a scheduling policy: which requests are admitted first, held, and retracted first.

A policy is pure: it does not change its input, keeps no state between calls, and returns the same answer for the same
input. Its input is one column (a numpy array) per figure, so that it orders thousands of requests in less than a
millisecond; a request is identified by its index in the columns. The scheduler decides how many requests are admitted,
by the memory and the token budget of the step.

A faulty policy fails no request: if it raises, or returns too few or unknown indices, llmfw logs that once with its
plugin's name, and orders requests by first come, first served instead.
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
    """The W waiting requests, unordered. Every column is [W], read only.

    Attributes:
        arrival: position in the order of arrival; smaller is earlier. A retracted request keeps its own.
        waited: seconds since the request arrived.
        time_left: seconds until its deadline; infinity without one.
        priority: priority from the client; larger is more urgent, 0 is ordinary.
        num_tokens: number of tokens of the prompt, and of the output before a retraction.
        num_cached: number of leading tokens in the prefix cache.
        num_to_come: number of output tokens that it may still generate.
        tenant: number of the API key or user that it belongs to.
        served: tokens computed for its tenant (see `Tenants`): the virtual counter of fair scheduling.
        overtaken: number of later requests that were admitted before it.
        request: function that returns the whole request at a place.
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
        """Return the number of waiting requests."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Running:
    """The R running requests, unordered. Every column is [R], read only.

    Attributes:
        arrival, priority, num_to_come, tenant, served, request: as in `Waiting`.
        prompt_len: number of prompt tokens.
        num_output: number of generated tokens.
        num_held: capacity in tokens of the pages that only this request holds, and that its retraction would free.
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
        """Return the number of running requests."""
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of pool and queue.

    Attributes:
        num_waiting, num_running: number of waiting, and of running, requests.
        num_places: number of further requests that may run. Live ones may take the places of deferrable ones.
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
"""Up to this number, lexsort orders requests fastest."""


class Ordering(NamedTuple):
    """A policy's answer.

    Attributes:
        places: all places of the waiting requests, each exactly once, in the order of admission: [W].
        num_held: number of places at the end that are not admitted in this step. (If nothing runs, the first request is
            still admitted, so that the engine makes progress.)
    """

    places: Places
    num_held: int = 0

    @classmethod
    def by(cls, *keys: npt.NDArray[np.generic]) -> Ordering:
        """Return the order by the first key, smallest first; equal ones by the next key, and so on.

        Orders thousands several times faster than `numpy.lexsort`, with the same result.
        """
        return cls(_sorted_by(keys) if len(keys[0]) > FEW else np.lexsort(keys[::-1]))


class SchedulePolicy(ABC):
    """Orders requests. Built once; called in each step in which a request waits and one could be admitted.

    Attributes:
        options: its options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o policy.key=value`. A policy with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def preempts(self) -> bool:
        """Whether the scheduler calls `give_way`: if the policy overrides it."""
        return type(self).give_way is not SchedulePolicy.give_way

    @abstractmethod
    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        """Return the order in which to admit the waiting requests."""

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        """Return the order in which to retract running requests when the pool is full, first to go first.

        By default, requests with the fewest output tokens go first, and of these the ones with the longest prompts. This
        loses the least work for the most room. The last one always stays.
        """
        places: Places = np.lexsort((-running.arrival, -running.prompt_len, running.num_output))
        return places

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        """Return which running requests may be retracted to admit the first of the order now, first to go first.

        Called only if there is no place or no room for the waiting request at `place`. The scheduler retracts as many as
        needed, and none if all of them are not enough. The default returns none.
        """
        return np.empty(0, dtype=np.intp)


def _sorted_by(keys: Sequence[npt.NDArray[np.generic]]) -> Places:
    """Return the result of lexsort: pack the keys, and the places last, into one integer, and sort that."""
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
    """Return for each value the number of different smaller values."""
    places = key.argsort()
    in_order = key[places]
    ranks = np.zeros(len(key), dtype=np.int64)
    ranks[places[1:]] = np.cumsum(in_order[1:] != in_order[:-1])
    return ranks
