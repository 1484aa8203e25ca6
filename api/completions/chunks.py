"""The chunks of one completion's stream. The constant part of a chunk is encoded once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from llmfw.api.http.sse import frame
from llmfw.api.schemas.common import Usage
from llmfw.api.schemas.completions import Completion, CompletionChoice
from llmfw.api.schemas.logprobs import CompletionLogprobs
from llmfw.api.text.choice import Choice
from llmfw.api.text.extras import NewTokenIds
from llmfw.api.text.text_stream import Delta

from .run import CompletionGeneration

TokenIds = list[int] | UnsetType

_MARK = "\x00text\x00"
_encode = msgspec.json.Encoder().encode


class CompletionChunks:
    """Encodes the chunks of one completion's stream as server-sent events.

    Args:
        empty: chunk without choices, which is copied to build each chunk.
        running: the completion whose chunks are encoded.
    """

    def __init__(self, empty: Completion, running: CompletionGeneration) -> None:
        self._empty = empty
        self._running = running
        self._extras = running.generation.extras
        self._token_ids = NewTokenIds()
        self._begun: set[int] = set()
        self._around = [self._around_text(choice.index) for choice in running.generation.choices]

    async def echo(self, choice: Choice) -> bytes:
        """Return the event for a choice's echoed prompt; b"" if there is no echo."""
        text, found = await self._running.echo_of(choice)
        logprobs = None if found is None else await self._running.joined(found)
        return self._piece(choice, text, logprobs, self._prompt_ids(choice, text or logprobs))

    def text(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        """Return the event for new text of a choice; b"" if it has no text and no log probabilities."""
        text, logprobs = self._running.piece(choice, deltas)
        if not text and logprobs is None:
            return b""
        ids = self._new_ids(choice)
        return self._piece(choice, text, logprobs, self._prompt_ids(choice, True), ids)

    def finish(self, choice: Choice) -> bytes:
        """Return a choice's last event, which has the finish reason."""
        ending = self._running.ending(choice)
        return self._choice(
            CompletionChoice(
                index=choice.index,
                text="",
                logprobs=self._running.last(choice),
                finish_reason=self._running.finish_reason(choice),
                matched_stop=ending.matched_stop,
                stop_reason=ending.stop_reason,
                token_ids=self._new_ids(choice),
                prompt_token_ids=self._prompt_ids(choice, True),
            )
        )

    def usage(self, usage: Usage) -> bytes:
        """Return the event with the token counts."""
        return frame(_encode(msgspec.structs.replace(self._empty, usage=usage)))

    def _piece(
        self,
        choice: Choice,
        text: str,
        logprobs: CompletionLogprobs | None,
        prompt: TokenIds,
        new: TokenIds = UNSET,
    ) -> bytes:
        if logprobs is not None or self._extras.token_ids or self._extras.usage:
            if not text and logprobs is None:
                return b""
            return self._choice(
                CompletionChoice(
                    index=choice.index, text=text, logprobs=logprobs, token_ids=new, prompt_token_ids=prompt
                )
            )
        if not text:
            return b""
        before, after = self._around[choice.index]
        return b"%b%b%b" % (before, _encode(text), after)

    def _prompt_ids(self, choice: Choice, is_sent: object) -> TokenIds:
        """Return the prompt's token ids for a choice's first event."""
        if not self._extras.token_ids or not is_sent or choice.index in self._begun:
            return UNSET
        self._begun.add(choice.index)
        return choice.request.prompt

    def _new_ids(self, choice: Choice) -> TokenIds:
        if not self._extras.token_ids:
            return UNSET
        return self._token_ids.take(choice) if self._running.returns_text else []

    def _choice(self, choice: CompletionChoice) -> bytes:
        chunk = msgspec.structs.replace(self._empty, choices=[choice])
        if self._extras.usage:
            chunk.usage = self._running.usage()
        return frame(_encode(chunk))

    def _around_text(self, index: int) -> tuple[bytes, bytes]:
        """Return the bytes of a choice's chunk before and after its text."""
        before, after = self._marked(index).split(_encode(_MARK))
        return before, after

    def _marked(self, index: int) -> bytes:
        choice = CompletionChoice(index=index, text=_MARK)
        return frame(_encode(msgspec.structs.replace(self._empty, choices=[choice])))
