"""The interface of a scheduling policy: in which order waiting requests are admitted.

A policy is pure: it changes nothing that it is given, and the same input gives the same order. It does not
decide how many are admitted; the scheduler does, by the memory and token budget of the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Waiting(Protocol):
    """What a policy sees of a waiting request. Read only."""

    @property
    def id(self) -> str:
        """The request's id."""

    @property
    def arrival(self) -> int:
        """Position in the order of arrival; smaller came earlier. A retracted request keeps its own."""

    @property
    def priority(self) -> int:
        """As asked by the client; larger is more urgent, 0 is ordinary."""

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """Prompt, and what was generated before a retraction: [num_tokens]."""


class PrefixLookup(Protocol):
    """What a policy may ask of the prefix cache."""

    def match_length(self, token_ids: npt.NDArray[np.int32]) -> int:
        """Return how many leading tokens are in the cache. Does not count as a use of them."""


class SchedulePolicy(ABC):
    """Orders the waiting requests. Built once, asked before each step in which something could be admitted."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o policy.key=value`. A policy with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def order(self, waiting: Sequence[Waiting], cache: PrefixLookup) -> Sequence[Waiting]:
        """Return the same requests, each exactly once, first to be admitted first."""
