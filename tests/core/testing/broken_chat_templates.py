"""Chat templates that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, ClassVar, cast

import pytest

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.interfaces.chat_template import ChatTemplate, Message
from llmfw.core.testing import ChatTemplateTests
from llmfw.plugins.chat_jinja.meter import Limits
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate


class GoodTemplate(ChatTemplate):
    """Keeps all promises: what the others are measured by."""

    roles = ("system", "user", "assistant")

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        return self.tools(tools) + "".join(map(self.turn, messages)) + "<assistant>" * add_generation_prompt

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> str:
        return "".join(json.dumps(tool) + "\n" for tool in tools)

    def turn(self, message: Message) -> str:
        if message.get("role") not in self.roles:
            raise RequestError(f"no role {message.get('role')!r}", param="messages")
        if not isinstance(message.get("content"), str):
            raise RequestError("the content is not text", param="messages")
        return f"<{message['role']}>{message['content']}</{message['role']}>"


class EscapesText(GoodTemplate):
    def turn(self, message: Message) -> str:
        return super().turn({**message, "content": escape(str(message.get("content")))})


class SystemLast(GoodTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return super().render(sorted(messages, key=lambda m: m.get("role") == "system"), **kwargs)


class KeepsState(GoodTemplate):
    seen = ""

    def turn(self, message: Message) -> str:
        said, self.seen = self.seen, super().turn(message)
        return self.seen if not said or message["role"] != "system" else said + self.seen


class ChangesMessages(GoodTemplate):
    def turn(self, message: Message) -> str:
        if isinstance(message, dict):
            message.setdefault("name", "nobody")
        return super().turn(message)


class StripsInPlace(GoodTemplate):
    def turn(self, message: Message) -> str:
        if isinstance(message.get("content"), str):
            cast("dict[str, Any]", message)["content"] = message["content"].strip()
        return super().turn(message)


class StripsPartsInPlace(GoodTemplate):
    def turn(self, message: Message) -> str:
        if isinstance(parts := message.get("content"), list):
            for part in parts:
                part["text"] = part.get("text", "").strip()
            message = {**message, "content": "".join(part["text"] for part in parts)}
        return super().turn(message)


class RemembersSystem(GoodTemplate):
    """Puts the last system message of all into conversations without one."""

    known: ClassVar[list[Message]] = []

    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        if messages and messages[0]["role"] == "system":
            self.known[:] = messages[:1]
        else:
            messages = [*self.known, *messages]
        return super().render(messages, **kwargs)


class KeepsTwentyMessages(GoodTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return super().render(messages[-20:], **kwargs)


class CutsLongText(GoodTemplate):
    def turn(self, message: Message) -> str:
        if isinstance(content := message.get("content"), str):
            message = {**message, "content": content[:8000]}
        return super().turn(message)


class ComposesLetters(GoodTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return unicodedata.normalize("NFC", super().render(messages, **kwargs))


class NeverAppendsTurn(GoodTemplate):
    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **kwargs: Any
    ) -> str:
        return super().render(messages, add_generation_prompt=False, **kwargs)


class AppendsOnlyOnRequest(GoodTemplate):
    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False, **kwargs: Any
    ) -> str:
        return super().render(messages, add_generation_prompt=add_generation_prompt, **kwargs)


class RendersToolNamesOnly(GoodTemplate):
    def tools(self, tools: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(tool["function"]["name"] for tool in tools)


class IgnoresTools(GoodTemplate):
    def tools(self, tools: Sequence[Mapping[str, Any]]) -> str:
        return ""


class LeaksExceptions(GoodTemplate):
    def turn(self, message: Message) -> str:
        return f"<{message['role']}>" + message["content"]


class RejectsUnknownArguments(GoodTemplate):
    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        enable_thinking: bool = False,
    ) -> str:
        return super().render(messages, tools=tools, add_generation_prompt=add_generation_prompt)


class EscapesResults(JinjaChatTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return escape(super().render(messages, **kwargs), quote=False)


class CutsCostlyPrompts(JinjaChatTemplate):
    """Takes a source that it cannot render for an empty one."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            super().__init__(source, special_tokens)
        except ConfigError:
            super().__init__("{{ messages[0].content }}", special_tokens)


class MeasuresTooLate(JinjaChatTemplate):
    """Makes a text before it finds that the text is too long."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            super().__init__(source, special_tokens)
        except ConfigError:
            assert "x" * 2**28
            raise


class RendersFailuresAsNothing(JinjaChatTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        try:
            return super().render(messages, **kwargs)
        except RequestError:
            return ""


class AppendsSpaceInHaste(GoodTemplate):
    def render_briefly(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return self.render(messages, **kwargs) + " "


class TakesSourcesFromClients(GoodTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return str(kwargs.pop("source", "")) + super().render(messages, **kwargs)


class StopsModerateSources(JinjaChatTemplate):
    limits = Limits(text=100_000)


class KeepsNullValues(JinjaChatTemplate):
    def _as_expected(self, message: Message) -> dict[str, Any]:
        return {**message, **super()._as_expected(message)}


class TakesItsTime(JinjaChatTemplate):
    def render_briefly(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return self.render(messages, **kwargs)


class TakesAnySource(JinjaChatTemplate):
    """Finds out that a source is not Jinja when it renders it."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            super().__init__(source, special_tokens)
        except ConfigError as error:
            super().__init__(f"{{{{ raise_exception({str(error)[:99]!r}) }}}}", special_tokens)


class HidesReasons(JinjaChatTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        try:
            return super().render(messages, **kwargs)
        except RequestError as error:
            raise RequestError("the chat template refuses these messages", param="messages") from error


class RendersWithoutSource(JinjaChatTemplate):
    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        return super().render(messages, **kwargs) if self.source else str(messages)


class TiresOfRendering(JinjaChatTemplate):
    rendered = 0

    def render(self, messages: Sequence[Message], **kwargs: Any) -> str:
        self.rendered += 1
        if self.rendered > 10:
            raise RequestError("the template takes too many steps")
        return super().render(messages, **kwargs)


class OfKind(ChatTemplateTests):
    kind: type[ChatTemplate]

    @pytest.fixture
    def template(self) -> type[ChatTemplate]:
        return self.kind

    @pytest.fixture
    def has_tools(self) -> bool:
        return True

    @pytest.fixture
    def has_generation_prompt(self) -> bool:
        return True


def test_class(kind: type[ChatTemplate]) -> Any:
    """Return a test class for a template."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodTemplate, *GoodTemplate.__subclasses__(), *JinjaChatTemplate.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
