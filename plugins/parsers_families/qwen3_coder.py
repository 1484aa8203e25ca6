"""The tool parser `qwen3_coder`: tool calls with one tag per parameter (Qwen3-Coder)."""

from __future__ import annotations

import json
from typing import Any

from .calls import CallParser, Steps, examples
from .markers import partial_length
from .reader import Waiting
from .typed_text import kinds_of, to_json

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
FUNCTION = "<function="
FUNCTION_END = "</function>"
PARAMETER = "<parameter="
PARAMETER_END = "</parameter>"
VALUE_ENDS = (PARAMETER_END, "\n" + PARAMETER, "\n" + FUNCTION_END)


class Qwen3CoderToolParser(CallParser):
    """Reads `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.

    Converts the parameters to JSON arguments. The parameter's JSON schema determines the type of a value; a
    value that does not fit the schema is a string. A single line break at each end of a value is not part of
    the value. Strings are emitted as they arrive, other values as a whole. The outer tags may be missing, and
    so may `</parameter>` before another tag. If the text ends within a value, the arguments' object is left
    open: an incomplete string is emitted as far as it has arrived, any other incomplete value is dropped.
    """

    conformance = examples(
        (
            "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
    )

    markers = (OPEN, FUNCTION)

    def read_calls(self) -> Steps[bool]:
        reader = self.reader
        if (yield from reader.literal(OPEN)):
            yield from reader.space()
        if not (yield from reader.literal(FUNCTION)):
            return False
        name = yield from reader.word()
        if not (yield from reader.literal(">")) or name not in self.names:
            return False
        reader.take(reader.at)
        yield self.first_delta(name)
        if (yield from self._read_parameters(self._properties(name))):
            yield from self.skip(FUNCTION_END)
            yield from self.skip(CLOSE)
        return True

    def _properties(self, name: str) -> dict[str, Any]:
        for tool in self.tools:
            if tool["function"]["name"] == name:
                return (tool["function"].get("parameters") or {}).get("properties") or {}
        return {}

    def _read_parameters(self, properties: dict[str, Any]) -> Steps[bool]:
        """Emit all parameters as one JSON object; return whether the object is complete."""
        reader, before = self.reader, "{"
        while (yield from self._read_tag()):
            end = yield from reader.find(">")
            key = reader.take(end)
            if not reader.take(1):
                return False
            before += json.dumps(key, ensure_ascii=False) + ": "
            kinds = kinds_of(properties.get(key))
            read = self._read_string if kinds == {"string"} else self._read_value
            if not (yield from read(before, kinds)):
                return False
            before = ", "
        if reader.text and reader.is_cut_off(PARAMETER):
            reader.take(len(reader.text))
            return False
        yield self.next_delta("{}" if before == "{" else "}")
        return True

    def _read_tag(self) -> Waiting[bool]:
        """Take white space and the start of a parameter's opening tag; return whether there was a tag."""
        yield from self.reader.space()
        found = yield from self.reader.literal(PARAMETER)
        self.reader.take(self.reader.at)
        return found is not None

    def _read_string(self, before: str, kinds: set[str]) -> Steps[bool]:
        """Emit a string as it arrives; return whether it is complete."""
        reader = self.reader
        yield from self._skip_line_break()
        yield self.next_delta(before + '"')
        while True:
            ends = [place for end in VALUE_ENDS if (place := reader.text.find(end)) >= 0]
            length = min(ends, default=len(reader.text) - partial_length(reader.text, *VALUE_ENDS))
            length -= reader.text.endswith("\n", 0, length)
            if text := reader.take(length):
                yield self.next_delta(json.dumps(text, ensure_ascii=False)[1:-1])
            if ends:
                yield self.next_delta('"')
                yield from self.skip(PARAMETER_END)
                return True
            if reader.ended:
                reader.take(len(reader.text))
                return False
            yield None

    def _read_value(self, before: str, kinds: set[str]) -> Steps[bool]:
        """Emit a value once it is complete; return whether the value is complete."""
        reader = self.reader
        yield from self._skip_line_break()
        end = yield from reader.find(*VALUE_ENDS)
        text = reader.take(end)
        if not reader.text:
            return False
        yield self.next_delta(before + to_json(text.removesuffix("\n"), kinds))
        yield from self.skip(PARAMETER_END)
        return True

    def _skip_line_break(self) -> Waiting[None]:
        yield from self.reader.literal("\n")
        self.reader.take(self.reader.at)
