"""One choice of a generation: its request to the engine, and its text so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmfw.core.base.errors import EngineError
from llmfw.core.base.request import FinishReason, Request, TokenEvent, Wait

from .text_stream import Delta, TextStream

MakeText = Callable[[Sequence[int]], TextStream]
"""Takes a prompt's token ids; returns a new text stream for one choice."""


class Choice:
    """One continuation of one prompt.

    Attributes:
        index: index among the choices of its generation.
        request: the engine request.
        text: the text so far; has a finish reason at the end.
        wait: the engine's estimate of the wait, until the first token comes.
        has_restarted: whether the last event invalidated all earlier events.
    """

    __slots__ = ("_make_text", "has_restarted", "index", "request", "text", "wait")

    def __init__(self, index: int, request: Request, make_text: MakeText) -> None:
        self.index = index
        self.request = request
        self.wait: Wait | None = None
        self.has_restarted = False
        self._make_text = make_text
        self.text = make_text(request.prompt)

    def feed(self, event: TokenEvent) -> Sequence[Delta]:
        """Process an engine event; return the deltas that it adds to the text."""
        if event.finish_reason is FinishReason.ABORT:
            raise EngineError("the request was aborted")
        self.wait, self.has_restarted = event.wait, event.restarted
        if event.restarted:
            self.text = self._make_text(self.request.prompt)
        return () if event.restarted or event.wait is not None else self.text.feed(event)
