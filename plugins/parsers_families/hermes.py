"""Tool calls as JSON between <tool_call> and </tool_call>."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from llmfw.core.parsers import ContentDelta, ToolCallDelta, ToolParser

from .markers import certain_length

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

Deltas = list[ContentDelta | ToolCallDelta]


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class HermesToolParser(ToolParser):
    """Finds calls anywhere in the text. A call is given out whole: before its end nobody knows whether it is one.

    A call is valid if it is a JSON object with the `name` of one of the request's tools and, maybe, `arguments` that
    are an object (or a string that holds one). The last call may lack its closing marker. White space around valid
    calls is dropped.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(tools)
        self._names = {tool["function"]["name"] for tool in tools}
        self._text = ""
        self._space = ""  # before the call that is being read: dropped if it is one
        self._in_call = False
        self._strip = False
        self._num_calls = 0

    def feed(self, text: str) -> Deltas:
        self._text += text
        deltas: Deltas = []
        while (more := self._read_call() if self._in_call else self._read_content()) is not None:
            deltas += more
        if not self._in_call:
            deltas += self._content(certain_length(self._text, OPEN))
        return deltas

    def finish(self) -> Deltas:
        if self._in_call:
            raw, self._text = self._text, ""
            return self._call(raw, "")
        return self._content(len(self._text))

    def _read_content(self) -> Deltas | None:
        """Take the text up to a call, or return None if no call begins in it."""
        start = self._text.find(OPEN)
        if start < 0:
            return None
        deltas = self._content(len(self._text[:start].rstrip()))
        self._space, _, self._text = self._text.partition(OPEN)
        self._in_call = True
        return deltas

    def _read_call(self) -> Deltas | None:
        """Take a call, or return None if it is not complete."""
        raw, marker, after = self._text.partition(CLOSE)
        if not marker:
            return None
        self._text = after
        return self._call(raw, CLOSE)

    def _content(self, length: int) -> Deltas:
        """Take so much text as content."""
        text, self._text = self._text[:length], self._text[length:]
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return [ContentDelta(text)] if text else []

    def _call(self, raw: str, close: str) -> Deltas:
        """Return the call, or its text if it is none."""
        self._in_call = False
        arguments = name = None
        try:
            call = msgspec.json.decode(raw, type=_Call)
            name, arguments = call.name, _arguments(call.arguments)
        except msgspec.DecodeError:
            pass
        if name not in self._names or arguments is None:
            self._strip = False
            return [ContentDelta(f"{self._space}{OPEN}{raw}{close}")]
        self._strip = True
        self._num_calls += 1
        return [ToolCallDelta(self._num_calls - 1, name, arguments)]


def _arguments(raw: msgspec.Raw) -> str | None:
    """Return the arguments' JSON text as the model wrote it, or None if they are no object."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str):
        text, value = value, msgspec.json.decode(value)
    else:
        text = bytes(raw).decode()
    return text if isinstance(value, dict) else None
