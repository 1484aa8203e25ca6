"""The interfaces of parsers, which split a model's text into reasoning, content and tool calls.

A parser receives the text of one choice as it arrives, in chunks of any size, and returns events. The
concatenated events must not depend on how the text is split into chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec


class ContentDelta(msgspec.Struct, frozen=True, tag="content"):
    """Next text of the answer; never empty."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning"):
    """Next text of the reasoning before the answer; never empty."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call"):
    """Start or continuation of a tool call.

    Attributes:
        index: index of the call among this choice's calls, from 0, ascending.
        name: name of the tool, in the first delta of a call; None in the others.
        arguments: next part of the arguments' JSON text.
    """

    index: int
    name: str | None = None
    arguments: str = ""


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Format of a tool call whose arguments are JSON: `begin`, the arguments as a JSON object, `end`.

    Attributes:
        begin: text before the arguments; "{name}" in it stands for the tool's name.
        end: text after the arguments.
        trigger: text that every `begin` starts with; once the model has written it, a call must follow.
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
    """Markers of an output in which reasoning, text and calls are separate messages.

    Attributes:
        opening, closing: markers around the reasoning.
        text: marker between the reasoning and an answer that is text.
        calls: marker between the reasoning and the first `CallFormat.begin`.
    """

    opening: str
    closing: str
    text: str
    calls: str


class ReasoningParser(ABC):
    """Splits one choice's text into reasoning and content. One object per choice.

    Args:
        in_reasoning: whether the prompt ends inside the reasoning, because the chat template has opened it.
        options: an instance of the parser's `Options`, passed by keyword, only to a parser that has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o reasoning_parser.key=value`.

        A parser with options overrides this.
        """

    opening: ClassVar[str | None] = None
    """Text that opens the reasoning. A prompt that ends with this text and white space ends inside the
    reasoning."""

    closing: ClassVar[str | None] = None
    """Text that closes the reasoning. A grammar applies after this text. The engine writes it when the
    thinking budget is spent."""

    spaces: ClassVar[tuple[str, ...]] = ()
    """Possible white space between `closing` and the answer, which this parser drops."""

    messages: ClassVar[MessageMarks | None] = None
    """Markers to use instead of `closing` if the answer may have calls. Needed if `closing` includes the
    marker that the answer is text."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    keeps_calls: bool = True
    """Whether tool calls stay in the content as written, for a tool parser. If no tool parser reads the
    content, set this to False before feeding text. Only parsers of formats in which calls are separate
    messages use this."""

    def __init__(self, *, in_reasoning: bool = False) -> None:
        self.in_reasoning = in_reasoning

    @abstractmethod
    def feed(self, text: str) -> Sequence[ReasoningDelta | ContentDelta]:
        """Take the next text; return the events that are certain by now."""

    @abstractmethod
    def finish(self) -> Sequence[ReasoningDelta | ContentDelta]:
        """Return the events for the text that `feed` has held back. No more text is fed afterwards."""


class ToolParser(ABC):
    """Finds tool calls in the content of one choice. One object per choice.

    Args:
        tools: the request's tool definitions, as in the OpenAI API.
        options: an instance of the parser's `Options`, passed by keyword, only to a parser that has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o tool_parser.key=value`.

        A parser with options overrides this.
        """

    call_format: ClassVar[CallFormat | None] = None
    """Format of calls, so that a grammar can enforce them; None: calls do not have the form of a
    `CallFormat`."""

    needs_special_tokens: ClassVar[bool] = False
    """Whether the parser reads special tokens as text (else they are left out of the text it is fed)."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self.tools = tools

    @abstractmethod
    def feed(self, text: str) -> Sequence[ContentDelta | ToolCallDelta]:
        """Take the next text; return the events that are certain by now.

        Text that is not a valid call is returned as content. A call of a tool that the request does not
        define is also returned as content.
        """

    @abstractmethod
    def finish(self) -> Sequence[ContentDelta | ToolCallDelta]:
        """Return the events for the text that `feed` has held back. No more text is fed afterwards.

        An incomplete call becomes content if no event of it was returned yet.
        """
