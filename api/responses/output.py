"""Converts the deltas of a generation to output items, and to the events that report their growth.

An item ends when a delta of another kind, or of another call, arrives. Each event gets a new item object, so
that later deltas do not change the event. Lifecycle events and sequence numbers are added elsewhere
(`event_log`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from llmfw.api.chat.chunks import new_call_id
from llmfw.api.schemas.logprobs import TokenEntry
from llmfw.api.schemas.responses import (
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ReasoningPart,
    TextPart,
)
from llmfw.api.text.logprobs import chat_logprobs
from llmfw.api.text.text_stream import Delta
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ToolCallDelta

from .ids import item_id

Event = dict[str, Any]
"""One event: its `type` and the fields of that type, without `sequence_number`."""


class Output:
    """Builds the output items of one response from deltas.

    Args:
        response_id: id of the response, from which the items' ids are derived.

    Attributes:
        items: the finished items.
    """

    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self._open: _Open | None = None
        self.items: list[OutputItem] = []

    def add(self, delta: Delta) -> Iterator[Event]:
        """Add the next delta; yield its events."""
        if self._open is None or not self._open.takes(delta):
            yield from self._close("completed")
            yield from self._begin(delta)
        assert self._open is not None
        yield from self._open.add(delta)

    def finish(self, status: str) -> Iterator[Event]:
        """End the last item; yield its events. An empty answer becomes a message without text."""
        if self._open is None and not self.items:
            yield from self._begin(ContentDelta(""))
        yield from self._close(status)

    def abandon(self) -> None:
        """End the last item, if one is open, as incomplete."""
        list(self._close("incomplete"))

    def _begin(self, delta: Delta) -> Iterator[Event]:
        self._open = _begun(delta, self._response_id, len(self.items))
        yield from self._open.opening()

    def _close(self, status: str) -> Iterator[Event]:
        if self._open is not None:
            yield from self._open.closing(status)
            self.items.append(self._open.item(status))
            self._open = None


class _Open(ABC):
    """An output item that still receives deltas."""

    prefix: str

    def __init__(self, response_id: str, index: int) -> None:
        self.id = item_id(self.prefix, response_id, "o", index)
        self.index = index
        self.pieces: list[str] = []

    @abstractmethod
    def takes(self, delta: Delta) -> bool:
        """Return whether a delta belongs to this item."""

    @abstractmethod
    def add(self, delta: Any) -> Iterator[Event]:
        """Add a delta of this item's kind."""

    @abstractmethod
    def item(self, status: str) -> OutputItem:
        """Return the item with its content so far."""

    def opening(self) -> Iterator[Event]:
        """Yield the events before the first delta."""
        yield {
            "type": "response.output_item.added",
            "output_index": self.index,
            "item": self.item("in_progress"),
        }

    def closing(self, status: str) -> Iterator[Event]:
        """Yield the events after the last delta."""
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self.item(status)}

    def event(self, type: str, **fields: Any) -> Event:
        """Return an event about the content of this item."""
        return {"type": type, "item_id": self.id, "output_index": self.index, **fields}

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self.pieces)


class _OpenText(_Open):
    """An open item (see `_Open`) whose content is one text part: a message or reasoning."""

    kind: type[Delta]
    event_name: str

    def __init__(self, response_id: str, index: int) -> None:
        super().__init__(response_id, index)
        self.has_part = False

    @abstractmethod
    def part(self) -> TextPart | ReasoningPart:
        """Return the part with its text so far."""

    def score(self, delta: Delta) -> dict[str, Any]:
        """Record the log probabilities of a delta's tokens; return the event fields that contain them."""
        return {}

    def scores(self) -> dict[str, Any]:
        """Return the event fields with the log probabilities of all tokens so far."""
        return {}

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, self.kind)

    def opening(self) -> Iterator[Event]:
        yield from super().opening()
        self.has_part = True
        yield self.event("response.content_part.added", content_index=0, part=self.part())

    def add(self, delta: ContentDelta | ReasoningDelta) -> Iterator[Event]:
        if delta.text:
            self.pieces.append(delta.text)
            yield self.event(
                f"{self.event_name}.delta", content_index=0, delta=delta.text, **self.score(delta)
            )

    def closing(self, status: str) -> Iterator[Event]:
        yield self.event(f"{self.event_name}.done", content_index=0, text=self.text, **self.scores())
        yield self.event("response.content_part.done", content_index=0, part=self.part())
        yield from super().closing(status)


class _OpenReasoning(_OpenText):
    prefix, kind, event_name = "rs", ReasoningDelta, "response.reasoning_text"

    def part(self) -> ReasoningPart:
        return ReasoningPart(text=self.text)

    def item(self, status: str) -> ReasoningItem:
        return ReasoningItem(id=self.id, content=[self.part()] if self.has_part else [], status=status)


class _OpenMessage(_OpenText):
    prefix, kind, event_name = "msg", ContentDelta, "response.output_text"

    def __init__(self, response_id: str, index: int) -> None:
        super().__init__(response_id, index)
        self.entries: list[TokenEntry] = []

    def score(self, delta: Delta) -> dict[str, Any]:
        found = chat_logprobs([delta])
        new = found.content if found else []
        self.entries += new
        return {"logprobs": _in_event(new)}

    def scores(self) -> dict[str, Any]:
        return {"logprobs": _in_event(self.entries)}

    def part(self) -> TextPart:
        return TextPart(text=self.text, logprobs=list(self.entries))

    def item(self, status: str) -> MessageItem:
        return MessageItem(id=self.id, content=[self.part()] if self.has_part else [], status=status)


class _OpenCall(_Open):
    prefix = "fc"

    def __init__(self, response_id: str, index: int, first: ToolCallDelta) -> None:
        super().__init__(response_id, index)
        self.call_index = first.index
        self.name = first.name or ""
        self.call_id = new_call_id()

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, ToolCallDelta) and delta.index == self.call_index

    def add(self, delta: ToolCallDelta) -> Iterator[Event]:
        if delta.arguments:
            self.pieces.append(delta.arguments)
            yield self.event("response.function_call_arguments.delta", delta=delta.arguments)

    def closing(self, status: str) -> Iterator[Event]:
        yield self.event("response.function_call_arguments.done", name=self.name, arguments=self.text)
        yield from super().closing(status)

    def item(self, status: str) -> FunctionCallItem:
        return FunctionCallItem(
            id=self.id, status=status, call_id=self.call_id, name=self.name, arguments=self.text
        )


def _begun(delta: Delta, response_id: str, index: int) -> _Open:
    if isinstance(delta, ToolCallDelta):
        return _OpenCall(response_id, index, delta)
    return (_OpenReasoning if isinstance(delta, ReasoningDelta) else _OpenMessage)(response_id, index)


def _in_event(entries: Sequence[TokenEntry]) -> list[dict[str, Any]]:
    """Convert log probability entries to the form used in events, which omits the tokens' bytes."""
    return [
        {
            "token": entry.token,
            "logprob": entry.logprob,
            "top_logprobs": [{"token": top.token, "logprob": top.logprob} for top in entry.top_logprobs],
        }
        for entry in entries
    ]
