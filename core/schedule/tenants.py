"""Counters for fair scheduling: the engine's work for each tenant (an API key or a user).

A tenant's counter is the number of tokens computed for the tenant: prompt tokens, plus twice the generated
tokens, which cost more (Sheng et al., 2024, "Fairness in Serving Large Language Models"). When an idle tenant
sends a request, its counter is raised to at least the lowest counter of the active tenants. So a tenant
cannot save up unused capacity.

A tenant's deferrable requests, such as the lines of its batches, have a separate counter. They use only
capacity that live requests leave, and do not count against the tenant's live requests.
"""

from __future__ import annotations

import numpy as np

from .sequence_table import Floats, Ints

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
NUM_REMEMBERED = 1024
"""Maximum number of tenants to remember, unless all are active. A forgotten tenant starts again like a new
one."""


class Tenants:
    """Assigns numbers to tenants, and counts the tokens that each tenant has been served.

    A tenant has one number for its live requests and another for its deferrable ones (see `deferral`).

    Attributes:
        served: tokens served, by number. An output token counts as OUTPUT_WEIGHT tokens. When an idle tenant
            sends a request, its entry is raised to the lowest entry of the busy tenants of the same class.
        is_key: whether the tenant is an API key, by number.
        num_open_keys: number of API keys with a live request that waits or runs.
    """

    def __init__(self) -> None:
        self.served: Floats = np.zeros(16)
        self._numbers: dict[tuple[str, bool], int] = {}
        self._open = np.zeros(16, dtype=np.int64)  # number of requests that wait or run
        self._is_deferrable = np.zeros(16, dtype=np.bool_)
        self.is_key = np.zeros(16, dtype=np.bool_)
        self.num_open_keys = 0
        self._names: list[tuple[str, bool]] = []

    def join(self, name: str, *, deferrable: bool = False, is_key: bool = False) -> int:
        """Record a new request; return the number of its tenant and class (live or deferrable)."""
        number = self._numbers.get((name, deferrable))
        if number is None:
            number = self._numbers[name, deferrable] = self._number()
            self._names[number] = name, deferrable
            self._is_deferrable[number] = deferrable
        if not self._open[number]:
            num = len(self._names)
            busy = (self._open[:num] > 0) & (self._is_deferrable[:num] == deferrable)
            least = self.served[: len(self._names)][busy].min() if busy.any() else 0.0
            self.served[number] = max(self.served[number], least)
            self.is_key[number] = is_key
            self.num_open_keys += is_key and not deferrable
        self._open[number] += 1
        return number

    def leave(self, number: int) -> None:
        """Record that a request ended."""
        self._open[number] -= 1
        if not self._open[number]:
            self.num_open_keys -= bool(self.is_key[number] and not self._is_deferrable[number])

    def num_open(self, name: str) -> int:
        """Return the number of a tenant's requests that wait or run. Deferrable requests do not count."""
        number = self._numbers.get((name, False))
        return 0 if number is None else int(self._open[number])

    def charge(self, tenants: Ints, weights: Floats | float) -> None:
        """Add weights to the counters of these tenants. A tenant's number may occur more than once.

        Does nothing while there is one tenant, whose counter is compared with no other.
        """
        if len(self._names) > 1:
            each = np.broadcast_to(np.asarray(weights, dtype=np.float64), tenants.shape)
            self.served += np.bincount(tenants, weights=each, minlength=len(self.served))

    def _number(self) -> int:
        """Return a number for a new tenant.

        At the limit, reuse the number of the idle tenant with the lowest counter.
        """
        if len(self._names) >= NUM_REMEMBERED:
            idle = np.flatnonzero(self._open[: len(self._names)] == 0)
            if len(idle):
                number = int(idle[self.served[idle].argmin()])
                del self._numbers[self._names[number]]
                self.served[number] = 0.0
                return number
        if len(self._names) == len(self.served):
            self.served = np.concatenate([self.served, np.zeros_like(self.served)])
            self.is_key = np.concatenate([self.is_key, np.zeros_like(self.is_key)])
            self._open = np.concatenate([self._open, np.zeros_like(self._open)])
            self._is_deferrable = np.concatenate([self._is_deferrable, np.zeros_like(self._is_deferrable)])
        self._names.append(("", False))
        return len(self._names) - 1
