"""The interface of a chat template, which turns messages into the prompt's text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Message = Mapping[str, Any]
"""A message as in the OpenAI API: `role`, `content`, and further fields that depend on the role."""


class ChatTemplate(ABC):
    """Turns a conversation into the text that the model continues. Stateless once built.

    Args:
        source: text of the template, from the tokenizer or from the user's file; "" if there is none.
        special_tokens: the tokenizer's special tokens by name: `bos_token`, `eos_token`, ….
        options: an instance of the template's `Options`, passed by keyword, only to a template that has
            options.

    Attributes:
        source, special_tokens: the constructor's arguments.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o chat_template.key=value`.

        A template with options overrides this.
        """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self.special_tokens = special_tokens

    @abstractmethod
    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """Render the prompt of a conversation.

        Args:
            messages: the conversation, as the client wrote it: `content` may be text, a list of parts, None
                or absent.
            tools: tool definitions as in the OpenAI API.
            add_generation_prompt: whether to end with the start of an assistant turn.
            kwargs: the client's `chat_template_kwargs`, such as `enable_thinking`; unknown keys are ignored.

        Raises:
            RequestError: the template rejects these messages; the error has the template's own message. Raise
                only this exception for input that cannot be rendered.
        """

    def render_briefly(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str | None:
        """Render the prompt within a few milliseconds; return None if rendering takes longer.

        Called on the event loop, which waits for the result. If the result is None, the server calls `render`
        in a thread. By default, renders every prompt. Override this method for templates that can take long.

        Raises:
            RequestError: as in `render`.
        """
        return self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, **kwargs)
