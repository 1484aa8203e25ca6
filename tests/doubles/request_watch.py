"""A watch of one request that keeps the events that it is told of."""

from __future__ import annotations

from contextlib import AbstractContextManager

from llmfw.core.base.request import TokenEvent


class KeepingWatch(AbstractContextManager[None]):
    """Implements `RequestWatch`.

    Attributes:
        noted: events that were passed to `note`.
        num_tokens: number of tokens so far.
    """

    def __init__(self) -> None:
        self.noted: list[TokenEvent] = []
        self.num_tokens = 0

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, event: TokenEvent) -> None:
        self.noted.append(event)
        self.num_tokens += len(event.token_ids)
