"""Text streams of chats that omit the reasoning, or return the whole reasoning as one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.text.text_stream import Delta, TextStream
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import TokenEvent
from llmfw.core.interfaces.parsers import ReasoningDelta, ReasoningParser


class TextWithoutReasoning(TextStream):
    """A text stream that omits the reasoning. The tokens of the reasoning are still counted."""

    def feed(self, event: TokenEvent) -> Sequence[Delta]:
        return [delta for delta in super().feed(event) if not isinstance(delta, ReasoningDelta)]


class TextWithWholeReasoning(TextStream):
    """A text stream that returns the whole reasoning as one delta, after the reasoning has ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: list[str] = []

    def feed(self, event: TokenEvent) -> Sequence[Delta]:
        shown: list[Delta] = []
        for delta in super().feed(event):
            if isinstance(delta, ReasoningDelta):
                self._held.append(delta.text)
            else:
                shown += [*self._released(), delta]
        return [*shown, *self._released()] if self.finish_reason is not None else shown

    def _released(self) -> list[Delta]:
        """Return the reasoning that was held back as one delta, and clear it."""
        text = "".join(self._held)
        self._held.clear()
        return [ReasoningDelta(text)] if text else []


def text_class(body: ChatRequest, parser: type[ReasoningParser] | None) -> type[TextStream]:
    """Return the class of the text streams that answer a request.

    Args:
        parser: parser of the model's reasoning, or None.

    Raises:
        RequestError: the request omits the reasoning, but the server cannot separate it from the content, or
            the request sets `separate_reasoning` to false.
    """
    if body.include_reasoning is False:
        if body.separate_reasoning is False:
            raise RequestError(
                "include_reasoning is false and separate_reasoning is false, which keeps the reasoning in the "
                "content; give one of them",
                param="include_reasoning",
            )
        if parser is None:
            raise RequestError(
                "include_reasoning is false, and this server has no reasoning parser that would find the "
                "reasoning; start it with --reasoning-parser, or leave the field out",
                param="include_reasoning",
                code="unsupported_parameter",
            )
        return TextWithoutReasoning
    return TextWithWholeReasoning if body.stream_reasoning is False else TextStream
