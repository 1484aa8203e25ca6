"""An engine whose model is divided among several processes (`--tp`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmfw.core.base.request import TokenEvent

from ..ranks.rank_processes import RankProcesses
from .engine import Engine


class DividedEngine(Engine):
    """Generates tokens with several ranks, and fails when one of them ends.

    Args:
        ranks: the other ranks.
        parts: arguments of `Engine`.
    """

    def __init__(self, ranks: RankProcesses, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._ranks = ranks

    @property
    def has_work(self) -> bool:
        return self._ranks.have_ended or super().has_work

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        super().call_when_ready(wake)
        self._ranks.call_when_ended(wake)

    def step(self) -> list[TokenEvent]:
        """Run one step; return its events.

        Raises:
            RankError: a rank has ended or failed.
        """
        self._ranks.check()
        return super().step()
