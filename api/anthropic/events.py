"""The events of one message's stream.

Consecutive deltas of one kind form a block. When the kind changes, the block is closed and the next one is
opened.
"""

from __future__ import annotations

import msgspec

from llmfw.api.schemas.anthropic import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Event,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    TextDelta,
    ThinkingDelta,
)
from llmfw.api.text.generation import Generation
from llmfw.api.text.text_stream import Delta
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta

from .reply import begins_block, message_id, message_usage, new_block, stop_of

_encode = msgspec.json.Encoder().encode


def encode_event(event: Event) -> bytes:
    """Encode an event, with its name both in the `event` line and in the data."""
    return b"event: %b\ndata: %b\n\n" % (str(event.__struct_config__.tag).encode(), _encode(event))


class MessageEvents:
    """Encodes the events of one message's stream.

    Args:
        generation: the generation that the events report.
        model: served name of the model.
    """

    def __init__(self, generation: Generation, model: str) -> None:
        self._generation = generation
        self._model = model
        self._index = -1
        self._last: Delta | None = None
        self._called = False

    def start(self) -> bytes:
        """Return the first event, `message_start`."""
        message = Message(
            id=message_id(self._generation),
            model=self._model,
            content=[],
            usage=message_usage(self._generation),
        )
        return encode_event(MessageStart(message))

    def delta(self, delta: Delta) -> bytes:
        """Return the events for a piece of the answer."""
        data = b""
        if begins_block(delta, self._last):
            data = self._stop_block()
            self._index += 1
            data += encode_event(ContentBlockStart(self._index, new_block(delta)))
        self._last = delta
        if isinstance(delta, ContentDelta):
            piece: TextDelta | ThinkingDelta | InputJsonDelta = TextDelta(delta.text)
        elif isinstance(delta, ReasoningDelta):
            piece = ThinkingDelta(delta.text)
        else:
            piece = InputJsonDelta(delta.arguments)
            self._called = True
        return data + encode_event(ContentBlockDelta(self._index, piece))

    def finish(self) -> bytes:
        """Return the last events: end of the block, stop reason and token counts, and `message_stop`."""
        end = MessageDelta(stop_of(self._generation, called=self._called), message_usage(self._generation))
        return self._stop_block() + encode_event(end) + encode_event(MessageStop())

    def _stop_block(self) -> bytes:
        return b"" if self._last is None else encode_event(ContentBlockStop(self._index))
