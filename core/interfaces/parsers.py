"""The interfaces of parsers: a model's text → reasoning, content and tool calls.

A parser is fed the text of one choice as it comes, in pieces of any size, and gives back events. However the text
is cut into pieces, the events put together are the same.
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
        index: of the call among this choice's calls, from 0, ascending.
        name: the tool's name, on the first delta of a call.
        arguments: more of the arguments' JSON text.
    """

    index: int
    name: str | None = None
    arguments: str = ""


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a model writes a tool call whose arguments are JSON: `begin`, the arguments' object, `end`.

    Attributes:
        begin: "{name}" in it stands for the tool's name.
        end: what follows the arguments.
        trigger: a text that every `begin` starts with: once it is written, the text is a call.
        between: what separates two calls.
        before, after: what is around all calls together.
    """

    begin: str
    end: str
    trigger: str
    between: str = "\n"
    before: str = ""
    after: str = ""


class MessageMarks(msgspec.Struct, frozen=True, kw_only=True):
    """How an output is marked in which reasoning, text and calls are messages of their own.

    Attributes:
        opening, closing: around the reasoning.
        text, calls: what follows then, before a text that is the answer, or before the first `CallFormat.begin`.
    """

    opening: str
    closing: str
    text: str
    calls: str


class ReasoningParser(ABC):
    """Splits one choice's text into reasoning and content. One object per choice.

    Args:
        in_reasoning: the prompt already ends inside the reasoning (the chat template opened it).
        options: given by this name, and only to a parser that has some: an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o reasoning_parser.key=value`. A parser with options overrides this."""

    opening: ClassVar[str | None] = None
    """Text that opens the reasoning: a prompt that ends with it (and white space) ends inside the reasoning."""

    closing: ClassVar[str | None] = None
    """Text that closes the reasoning: from there on a grammar holds, and a thinking budget writes it."""

    spaces: ClassVar[tuple[str, ...]] = ()
    """White space that models write between `closing` and the answer, and this parser drops."""

    messages: ClassVar[MessageMarks | None] = None
    """The marks of an answer that may have calls, where `closing` says already that it is a text."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    keeps_calls: bool = True
    """Whether tool calls stay in the content as they are written, because a tool parser reads it. To be set to False
    before text is fed if none does; only parsers that see calls as messages of their own look at it."""

    def __init__(self, *, in_reasoning: bool = False) -> None:
        self.in_reasoning = in_reasoning

    @abstractmethod
    def feed(self, text: str) -> Sequence[ReasoningDelta | ContentDelta]:
        """Take more text; return what is certain by now."""

    @abstractmethod
    def finish(self) -> Sequence[ReasoningDelta | ContentDelta]:
        """Return what was held back. Nothing is fed afterwards."""


class ToolParser(ABC):
    """Finds tool calls in the content of one choice. One object per choice.

    Args:
        tools: the request's tool definitions, as in the OpenAI API.
        options: given by this name, and only to a parser that has some: an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o tool_parser.key=value`. A parser with options overrides this."""

    call_format: ClassVar[CallFormat | None] = None
    """How calls are written, so that a grammar can enforce them; None: this cannot be said with JSON arguments."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self.tools = tools

    @abstractmethod
    def feed(self, text: str) -> Sequence[ContentDelta | ToolCallDelta]:
        """Take more text; return what is certain by now.

        Text that is no valid call comes back as content, and so does a call of a tool that is not among the request's.
        """

    @abstractmethod
    def finish(self) -> Sequence[ContentDelta | ToolCallDelta]:
        """Return the text held back. A call of which nothing was returned yet becomes content. No more text is fed
        afterwards."""
