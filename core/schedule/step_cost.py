"""Limits the time that one output's grammar adds to the engine's steps, which delays all requests.

A step may be slow occasionally: time beyond an allowance adds to a debt. The request ends if the debt exceeds its limit.
"""

from __future__ import annotations

from llmfw.core.base.errors import GrammarCostError

FREE_S = 0.02
"""CPU seconds that each token's mask may take."""
MAX_DEBT_S = 0.2


class StepCost:
    """The CPU time of one output's grammar beyond its allowance."""

    __slots__ = ("_debt_s",)

    def __init__(self) -> None:
        self._debt_s = 0.0

    def charge(self, seconds: float) -> None:
        """Add CPU time."""
        self._debt_s += seconds

    def allow(self) -> None:
        """Grant the allowance of one token."""
        self._debt_s = max(0.0, self._debt_s - FREE_S)

    def check(self) -> None:
        """Raise GrammarCostError if the grammar has taken too much."""
        if self._debt_s > MAX_DEBT_S:
            raise GrammarCostError(
                f"the grammar is too complex: choosing its tokens took {1000 * self._debt_s:.0f} ms more than the "
                f"{1000 * FREE_S:.0f} ms a token that are allowed; make it smaller or less ambiguous",
                param="grammar",
            )
