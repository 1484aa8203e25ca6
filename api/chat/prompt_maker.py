"""Makes the prompt of a chat request: reads its images, renders its messages, and encodes the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from llmfw.api.media.part import ImagePart, with_image_parts
from llmfw.api.media.vision import Vision
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.text.encoder import PromptEncoder
from llmfw.api.text.generation import Generator
from llmfw.api.text.threads import LONG
from llmfw.api.text.truncation import Truncation
from llmfw.core.base.errors import RequestError
from llmfw.core.base.media import MediaSpan
from llmfw.core.interfaces.chat_template import ChatTemplate

from .messages import wrong_type
from .prompt import render_prompt, render_prompt_briefly
from .size import MAX_INLINE, chat_size

Tools = Sequence[Mapping[str, Any]]


class ChatPrompt(msgspec.Struct, frozen=True):
    """The prompt of a chat.

    Attributes:
        text: the rendered chat, with a mark for each image.
        tokens: token ids of the text.
        media: the images of the chat.
    """

    text: str
    tokens: list[int]
    media: tuple[MediaSpan, ...] = ()


class ChatPrompts:
    """Makes the prompts of chats.

    Args:
        generator: generator that runs the prompts.
        template: template that renders messages.
        max_messages: maximum number of messages of a chat, and of parts of one message.
        vision: reads images; None: the model reads text only.
    """

    def __init__(
        self, generator: Generator, template: ChatTemplate, max_messages: int, vision: Vision | None = None
    ) -> None:
        self._generator = generator
        self._template = template
        self._max_messages = max_messages
        self._vision = vision

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images."""
        return self._vision is not None

    async def make(self, body: ChatRequest, tools: Tools, truncation: Truncation, tenant: str) -> ChatPrompt:
        """Return a request's prompt, cut to the length that it asks for.

        Args:
            tools: tools to pass to the template.
            tenant: tenant of the request, for fair shares of the processes that decode images.

        Raises:
            RequestError: a message is invalid, or an image is not accepted; names the field.
        """
        if self._vision is not None:
            messages = _with_checked_images(body.messages)
            if _has_images(messages):
                body = msgspec.structs.replace(body, messages=messages)
                return await self._with_images(self._vision, body, tools, truncation, tenant)
        text = await self.text(body, tools, truncation.texts)
        tokens = await truncation.texts.encode(text, add_special_tokens=False)
        return ChatPrompt(text, truncation.cut(tokens))

    async def text(
        self, body: ChatRequest, tools: Tools, texts: PromptEncoder, *, images: bool = False
    ) -> str:
        """Return the prompt's text.

        Raises ContextLengthError before rendering if the messages alone are too long for the context.

        Args:
            texts: encoder with the limit on characters.
            images: as in `check_messages`.
        """
        size = chat_size(body.messages, tools, self._max_messages)
        texts.check_characters(size.num_characters, "messages")
        threads, args = self._generator.threads, (body, self._template, tools, images)
        if size.cost <= MAX_INLINE:
            prompt = render_prompt_briefly(*args)
        else:
            prompt = await threads.run(size.cost, render_prompt_briefly, *args)
        # A slow template must delay neither the event loop nor other large chats.
        return await threads.run(LONG, render_prompt, *args) if prompt is None else prompt

    async def _with_images(
        self, vision: Vision, body: ChatRequest, tools: Tools, truncation: Truncation, tenant: str
    ) -> ChatPrompt:
        if body.truncate_prompt_tokens is not None:
            raise RequestError(
                "truncate_prompt_tokens could cut an image in two; leave it out",
                param="truncate_prompt_tokens",
            )
        with vision.reader.holding(tenant) as hold:
            messages, images = await vision.reader.read(body.messages, tenant, hold)
            body = msgspec.structs.replace(body, messages=list(messages))
            text = await self.text(body, tools, truncation.texts, images=True)
            prompt = await vision.prompt(text, images, tenant)
        return ChatPrompt(text, prompt.token_ids, prompt.spans)


def _with_checked_images(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with an `ImagePart` in place of each image; raise RequestError for parts of other types."""
    found = [*with_image_parts(messages)]
    for i, message in enumerate(found):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(part, ImagePart) and kind != "text":
                raise wrong_type(kind, f"messages[{i}].content[{j}]", images=True)
    return found


def _has_images(messages: Sequence[dict[str, Any]]) -> bool:
    contents = [message.get("content") for message in messages]
    return any(isinstance(part, ImagePart) for each in contents if isinstance(each, list) for part in each)
