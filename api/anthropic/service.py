"""Messages: answers Anthropic's requests by running them as chats. Does not depend on HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from llmfw.api.chat.service import ChatService
from llmfw.api.http.errors import log_unexpected
from llmfw.api.http.sse import comment_on
from llmfw.api.schemas.anthropic import Message, MessagesRequest, TokenCount, ToolUseBlock
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.text.generation import Generation, Generator
from llmfw.api.text.terms import key_name, tenant_of
from llmfw.core.base.errors import RequestError

from .errors import anthropic_error
from .events import MessageEvents, encode_event
from .reply import blocks_of, message_id, message_usage, stop_of
from .request import renamed


class MessageService:
    """Answers requests of Anthropic's Messages API.

    Args:
        chat: chat service that runs the prompts.
        generator: generator with the model's served name and the tokenizer.

    Attributes:
        body_type: class of the route's bodies: MessagesRequest, or a subclass with the request fields of
            plugins.
    """

    def __init__(self, chat: ChatService, generator: Generator) -> None:
        self._chat = chat
        self._generator = generator
        self.body_type = generator.fields.body_type(MessagesRequest, "/v1/messages")

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images."""
        return self._chat.reads_images

    async def start(self, chat: ChatRequest) -> Generation:
        """Return the generation that answers a request.

        Args:
            chat: the request, converted by `to_chat`.

        Raises:
            RequestError: a field is wrong; names the field.
            EngineDeadError: the engine has died.
        """
        try:
            return await self._chat.start(chat)
        except RequestError as error:
            raise renamed(error) from error

    async def reply(self, generation: Generation) -> Message:
        """Run a generation to its end and return the whole message."""
        deltas = await generation.finish()
        content = blocks_of(deltas[0])
        stop = stop_of(generation, called=any(isinstance(block, ToolUseBlock) for block in content))
        return Message(
            id=message_id(generation),
            model=generation.model,
            content=content,
            stop_reason=stop.stop_reason,
            stop_sequence=stop.stop_sequence,
            usage=message_usage(generation),
        )

    async def stream(self, generation: Generation) -> AsyncGenerator[bytes, None]:
        """Run a generation, and yield its server-sent events.

        The first event is sent once the engine has answered, because it contains the number of cached prompt
        tokens. If the generation fails before the engine has answered or reported a wait, the exception is
        raised. A later failure ends the stream with an error event.
        """
        events = MessageEvents(generation, generation.model)
        begun = started = False
        try:
            async with contextlib.aclosing(generation.events()) as source:
                async for choice, deltas in source:
                    begun = True
                    if choice.wait is not None:
                        yield comment_on(choice.wait)
                        continue
                    data = b"" if started else events.start()
                    started = True
                    data += b"".join([events.delta(delta) for delta in deltas])
                    if data:
                        yield data
            yield events.finish()
        except Exception as error:
            if not begun:
                raise
            log_unexpected(error, "a stream")
            yield encode_event(anthropic_error(error))

    async def count_tokens(self, chat: ChatRequest) -> TokenCount:
        """Return the number of prompt tokens of a request.

        Args:
            chat: the request, converted by `to_chat`.

        Raises:
            RequestError: a field is wrong; names the field.
        """
        await self._generator.names.find(chat.model, key_name.get())
        self._generator.check(chat.model)
        return TokenCount(len(await self._chat.tokens(chat, tenant_of(chat.user))))
