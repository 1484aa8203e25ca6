"""The interfaces of parsers, which split a model's text into reasoning, content and tool calls.

A parser receives the text of one choice as it arrives, in pieces of any size, and returns events. The events together are
the same, however the text is cut into pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec


class ContentDelta(msgspec.Struct, frozen=True, tag="content"):
    """More text of the answer, never an empty one."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """More text of the thinking before the answer, never an empty one."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call"):
    """More of a tool call. The first delta of an index has the name; the others have only arguments.

    Attributes:
        index: index of the call among this choice's calls, from 0, ascending.
        name: the tool's name, on the first delta of a call.
        arguments: more of the arguments' JSON text.
    """

    index: int
    name: str | None = None
    arguments: str = ""


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Format of a tool call whose arguments are JSON: `begin`, the arguments' object, `end`.

    Attributes:
        begin: text before the arguments; "{name}" in it stands for the tool's name.
        end: text after the arguments.
        trigger: text that every `begin` starts with; once the model has written it, the text is a call.
        between: text between two calls.
        before, after: text around all calls together.
    """

    begin: str
    end: str
    trigger: str
    between: str = "\n"
    before: str = ""
    after: str = ""


class MessageMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of an output in which reasoning, text and calls are separate messages.

    Attributes:
        opening, closing: marks around the reasoning.
        text, calls: mark that follows, before an answer that is text, or before the first `CallFormat.begin`.
    """

    opening: str
    closing: str
    text: str
    calls: str


class ReasoningParser(ABC):
    """Splits one choice's text into reasoning and content. One object per choice.

    Args:
        in_reasoning: whether the prompt already ends inside the reasoning (the chat template opened it).
        options: an instance of its `Options`, passed by this name, only to a parser that has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o reasoning_parser.key=value`. A parser with options overrides this."""

    opening: ClassVar[str | None] = None
    """Text that opens the reasoning: a prompt that ends with it (and white space) ends inside the reasoning."""

    closing: ClassVar[str | None] = None
    """Text that closes the reasoning. A grammar applies after it, and a spent thinking budget writes it."""

    spaces: ClassVar[tuple[str, ...]] = ()
    """White space that models write between `closing` and the answer, and that this parser drops."""

    messages: ClassVar[MessageMarks | None] = None
    """Marks of an answer that may have calls, if `closing` already states that the answer is text."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    keeps_calls: bool = True
    """Whether tool calls stay in the content as written, because a tool parser reads it. Set it to False before feeding
    text if none does; only parsers that see calls as separate messages use it."""

    def __init__(self, *, in_reasoning: bool = False) -> None:
        self.in_reasoning = in_reasoning

    @abstractmethod
    def feed(self, text: str) -> Sequence[ReasoningDelta | ContentDelta]:
        """Take more text; return what is certain by now."""

    @abstractmethod
    def finish(self) -> Sequence[ReasoningDelta | ContentDelta]:
        """Return the text held back. No more text is fed afterwards."""


class ToolParser(ABC):
    """Finds tool calls in the content of one choice. One object per choice.

    Args:
        tools: the request's tool definitions, as in the OpenAI API.
        options: an instance of its `Options`, passed by this name, only to a parser that has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o tool_parser.key=value`. A parser with options overrides this."""

    call_format: ClassVar[CallFormat | None] = None
    """Format of calls, so that a grammar can enforce them; None: the format is not one with JSON arguments."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self.tools = tools

    @abstractmethod
    def feed(self, text: str) -> Sequence[ContentDelta | ToolCallDelta]:
        """Take more text; return what is certain by now.

        Text that is not a valid call is returned as content, and so is a call of a tool that the request does not define.
        """

    @abstractmethod
    def finish(self) -> Sequence[ContentDelta | ToolCallDelta]:
        """Return the text held back. A call of which nothing was returned yet becomes content. No more text is fed
        afterwards."""
