"""Limits the CPU time that one output's grammar adds to the engine's steps.

This time delays all requests. Each token that is not forced has an allowance. Time beyond the allowance adds
to a debt, and unused allowance reduces the debt, so a step may be slow occasionally. The request ends with an
error if the debt exceeds `MAX_DEBT_S`.
"""

from __future__ import annotations

from llmfw.core.base.errors import GrammarCostError

FREE_S = 0.02
"""Allowance per token, in CPU seconds."""
MAX_DEBT_S = 0.2
"""Largest debt of one output, in CPU seconds."""


class StepCost:
    """Tracks the CPU time that one output's grammar has taken beyond its allowance."""

    __slots__ = ("_debt_s",)

    def __init__(self) -> None:
        self._debt_s = 0.0

    def charge(self, seconds: float) -> None:
        """Add CPU time to the debt."""
        self._debt_s += seconds

    def allow(self) -> None:
        """Subtract the allowance of one token from the debt."""
        self._debt_s = max(0.0, self._debt_s - FREE_S)

    def check(self) -> None:
        """Raise GrammarCostError if the debt exceeds its limit."""
        if self._debt_s > MAX_DEBT_S:
            raise GrammarCostError(
                f"the grammar is too complex: choosing its tokens took {1000 * self._debt_s:.0f} ms more than the "
                f"{1000 * FREE_S:.0f} ms a token that are allowed; make it smaller or less ambiguous",
                param="grammar",
            )
