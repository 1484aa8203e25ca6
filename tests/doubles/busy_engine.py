"""The echo engine as one that is busy: it refuses requests, lets clients wait, and says so."""

from __future__ import annotations

from collections import Counter, deque

from llmfw.core.base.errors import OverloadedError, TenantLimitError
from llmfw.core.base.request import Request, TokenEvent, Wait

from .echo_engine import EchoEngine

FULL = OverloadedError("the queue is full: 8 requests wait", retry_after_s=0.3)
TENANT = TenantLimitError("'ann' has 2 requests", retry_after_s=2.5)


class BusyEngine(EchoEngine):
    """Refuses and delays as it is told.

    Attributes:
        refusals: for the next requests, each an error to refuse it with, or None to accept it.
        waits: what each request that wants to know is told before its first token.
    """

    def __init__(self) -> None:
        super().__init__(delay=0.005)
        self.refusals: deque[Exception | None] = deque()
        self.waits: list[Wait] = []
        self._told: Counter[str] = Counter()

    def add(self, request: Request) -> None:
        if self.refusals and (error := self.refusals.popleft()) is not None:
            raise error
        super().add(request)

    def _next(self, request: Request, done: int) -> list[TokenEvent]:
        told = self._told[request.id]
        if request.tell_wait and told < len(self.waits):
            self._told[request.id] += 1
            return [TokenEvent(request.id, [], wait=self.waits[told])]
        return super()._next(request, done)
