"""The chunks of one chat stream. The constant part of a content chunk is encoded once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from llmfw.api.http.sse import frame
from llmfw.api.schemas.chat import ChatChunk, ChatChunkChoice, ChatDelta, FunctionCall, ToolCallChunk
from llmfw.api.schemas.common import Usage
from llmfw.api.text.choice import Choice
from llmfw.api.text.endings import ending_of
from llmfw.api.text.extras import NewTokenIds
from llmfw.api.text.generation import Generation
from llmfw.api.text.logprobs import chat_logprobs
from llmfw.api.text.scored_tokens import ScoredContent
from llmfw.api.text.text_stream import Delta
from llmfw.api.text.usage import usage_of
from llmfw.core.interfaces.parsers import ContentDelta, ToolCallDelta

_MARK = "\x00text\x00"

_encode = msgspec.json.Encoder().encode


class ChatChunks:
    """Encodes the chunks of one chat stream as server-sent events.

    Args:
        generation: generation that provides the id, the creation time and the choices.
        model: served name of the model.
        fingerprint: the server's system fingerprint.
        include_usage: whether every chunk has the key `usage`, which is null in all chunks except the last.
        reasoning_fields: fields of a delta that contain the reasoning, and are null if there is none.
        usage_of: function that returns the token counts so far, for clients that ask for them in each chunk.
    """

    def __init__(
        self,
        generation: Generation,
        model: str,
        fingerprint: str,
        include_usage: bool,
        reasoning_fields: Sequence[str] = ("reasoning_content",),
        usage_of: Callable[[Generation], Usage] = usage_of,
    ) -> None:
        self._usage_of = usage_of
        self._reasoning_fields = reasoning_fields
        self._generation = generation
        self._extras = extras = generation.extras
        self._adds = extras.token_ids or extras.usage  # to chunks of content
        self._token_ids = NewTokenIds()
        self._chunk = ChatChunk(
            id=generation.id,
            created=generation.created,
            model=model,
            system_fingerprint=fingerprint,
            choices=[],
            usage=None if include_usage else UNSET,
        )
        self._content = [
            self._around_text(ChatChunkChoice(index=choice.index, delta=ChatDelta(content=_MARK)))
            for choice in generation.choices
        ]

    def roles(self) -> bytes:
        """Return the first event of each choice, which contains the role and the text to echo.

        Without text to echo, its content is null if tools can be called: to some clients, "" begins a text.
        """
        found = b""
        for choice in self._generation.choices:
            content = self._extras.echo or (None if choice.text.may_call else "")
            delta = ChatDelta(role="assistant", content=content, refusal=None)
            first = ChatChunkChoice(index=choice.index, delta=delta)
            is_first = self._extras.token_ids and choice is self._generation.choices[0]
            found += self._encode(first, choice.request.prompt if is_first else UNSET)
        return found

    def delta(self, choice: Choice, delta: Delta) -> bytes:
        """Return the event for one delta of a choice."""
        if isinstance(delta, ContentDelta) and not isinstance(delta, ScoredContent) and not self._adds:
            before, after = self._content[choice.index]
            return b"%b%b%b" % (before, _encode(delta.text), after)
        chunk = ChatChunkChoice(index=choice.index, delta=ChatDelta(), token_ids=self._new_ids(choice))
        if isinstance(delta, ContentDelta):
            chunk.delta.content = delta.text
            chunk.logprobs = chat_logprobs([delta], names_ids=self._extras.names_ids)
        elif isinstance(delta, ToolCallDelta):
            chunk.delta.tool_calls = [_call_chunk(delta)]
        else:
            for name in self._reasoning_fields:
                setattr(chunk.delta, name, delta.text)
        return self._encode(chunk)

    def finish(self, choice: Choice) -> bytes:
        """Return a choice's last event, which has the finish reason."""
        ending = ending_of(choice)
        return self._encode(
            ChatChunkChoice(
                index=choice.index,
                delta=ChatDelta(),
                finish_reason=choice.text.finish_reason,
                matched_stop=ending.matched_stop,
                stop_reason=ending.stop_reason,
                token_ids=self._new_ids(choice),
            )
        )

    def usage(self, usage: Usage) -> bytes:
        """Return the event with the token counts."""
        return frame(_encode(msgspec.structs.replace(self._chunk, usage=usage)))

    def _new_ids(self, choice: Choice) -> list[int] | UnsetType:
        return self._token_ids.take(choice) if self._extras.token_ids else UNSET

    def _encode(self, choice: ChatChunkChoice, prompt: list[int] | UnsetType = UNSET) -> bytes:
        for name in self._reasoning_fields:
            if getattr(choice.delta, name) is UNSET:
                setattr(choice.delta, name, None)
        chunk = msgspec.structs.replace(self._chunk, choices=[choice], prompt_token_ids=prompt)
        if self._extras.usage:
            chunk.usage = self._usage_of(self._generation)
        return frame(_encode(chunk))

    def _around_text(self, choice: ChatChunkChoice) -> tuple[bytes, bytes]:
        before, after = self._encode(choice).split(_encode(_MARK))
        return before, after


def _call_chunk(delta: ToolCallDelta) -> ToolCallChunk:
    """Return a piece of a tool call.

    The first piece has id, type and name; later ones have only arguments.
    """
    if delta.name is None:
        return ToolCallChunk(delta.index, FunctionCall(delta.arguments))
    function = FunctionCall(delta.arguments, delta.name)
    return ToolCallChunk(delta.index, function, new_call_id(), "function")


def new_call_id() -> str:
    """Return an id for a tool call."""
    return f"call_{uuid.uuid4().hex[:24]}"
