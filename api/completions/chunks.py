"""The chunks of one completion's stream. The constant part of a chunk is encoded once."""

from __future__ import annotations

import msgspec

from llmfw.api.http.sse import frame
from llmfw.api.schemas.common import Usage
from llmfw.api.schemas.completions import Completion, CompletionChoice
from llmfw.api.schemas.logprobs import CompletionLogprobs
from llmfw.api.text.endings import Ending

_MARK = "\x00text\x00"
_encode = msgspec.json.Encoder().encode


class CompletionChunks:
    """Encodes the chunks of one completion's stream as server-sent events.

    Args:
        empty: chunk without choices, from which all chunks are made.
        num_choices: number of choices.
    """

    def __init__(self, empty: Completion, num_choices: int) -> None:
        self._empty = empty
        self._around = [self._around_text(index) for index in range(num_choices)]

    def text(self, index: int, text: str, logprobs: CompletionLogprobs | None = None) -> bytes:
        """Return the event for a piece of a choice's text; b"" if it has no text and no log probabilities."""
        if logprobs is not None:
            return self._choice(CompletionChoice(index=index, text=text, logprobs=logprobs))
        if not text:
            return b""
        before, after = self._around[index]
        return b"%b%b%b" % (before, _encode(text), after)

    def finish(
        self, index: int, reason: str | None, ending: Ending, logprobs: CompletionLogprobs | None = None
    ) -> bytes:
        """Return a choice's last event, which has the finish reason."""
        return self._choice(
            CompletionChoice(
                index=index,
                text="",
                logprobs=logprobs,
                finish_reason=reason,
                matched_stop=ending.matched_stop,
                stop_reason=ending.stop_reason,
            )
        )

    def usage(self, usage: Usage) -> bytes:
        """Return the event with the token counts."""
        return frame(_encode(msgspec.structs.replace(self._empty, usage=usage)))

    def _choice(self, choice: CompletionChoice) -> bytes:
        return frame(_encode(msgspec.structs.replace(self._empty, choices=[choice])))

    def _around_text(self, index: int) -> tuple[bytes, bytes]:
        """Return the bytes of a choice's chunk before and after its text."""
        before, after = self._choice(CompletionChoice(index=index, text=_MARK)).split(_encode(_MARK))
        return before, after
