"""Tool calls as a Python list of calls, as Llama 3.2 and 4 write them."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from .calls import CallParser, Steps, examples
from .reader import Waiting
from .typed_text import json_of

OPEN = "<|python_start|>"
CLOSE = "<|python_end|>"

_HEAD = re.compile(r"\[\s*([\w.]*)\s*(.?)", re.DOTALL)
_PLAIN = re.compile(r"""[^'"\[\](){}]*""")
_STRING = re.compile(r"""(["'])(?:(?!\1)[^\\\n]|\\.)*\1""", re.DOTALL)
_LONG_STRING = re.compile(r'''("""|\'\'\')(?:[^\\]|\\.)*?\1''', re.DOTALL)
_JSON_NAMES = {"true": True, "false": False, "null": None}


class PythonicToolParser(CallParser):
    """Reads `[get_weather(city="Paris", n=3), stop()]` at the beginning of the text, or after <|python_start|>.

    A list is emitted when it is complete, and only if each item is a call of a tool whose keyword arguments are literals
    (`true`, `false` and `null` included). The last list may lack its closing bracket.
    """

    conformance = examples(
        ('[get_weather(city="Rome"), now()]', [("get_weather", '{"city": "Rome"}'), ("now", "{}")], ""),
        ("I look.<|python_start|>[now()]<|python_end|>", [("now", "{}")], "I look."),
    )

    needs_special_tokens = True
    markers = (OPEN,)
    starts = "["

    def read_calls(self) -> Steps[bool]:
        if (yield from self.reader.literal(OPEN)):
            yield from self.reader.space()
        text = yield from self._read_list()
        calls = _calls(text)
        if not calls or not all(name in self.names for name, _ in calls):
            return False
        self.reader.take(self.reader.at)
        for name, arguments in calls:
            yield self.first_delta(name, arguments)
        yield from self.skip(CLOSE)
        return True

    def _read_list(self) -> Waiting[str]:
        """Read a list, and return it; an empty text if none of the tools is called first, or it never ends."""
        reader, start = self.reader, self.reader.at
        while (head := _HEAD.match(reader.text, start)) and not head[2] and not reader.ended:
            yield None
        if head is None or head[2] != "(" or head[1] not in self.names:
            return ""
        depth = 0
        while True:
            plain = _PLAIN.match(reader.text, reader.at)
            assert plain is not None
            reader.at = plain.end()
            char = reader.text[reader.at : reader.at + 1]
            if not char:
                if reader.ended:
                    return reader.text[start:] + "]" if depth == 1 else ""
                yield None
            elif char in "\"'":
                if not (yield from self._read_string(char)):
                    return ""
            else:
                reader.at += 1
                depth += 1 if char in "[({" else -1
                if depth == 0:
                    return reader.text[start : reader.at]

    def _read_string(self, quote: str) -> Waiting[bool]:
        reader = self.reader
        while not reader.ended and len(reader.text) - reader.at < 3:
            yield None
        pattern = _LONG_STRING if reader.text.startswith(quote * 3, reader.at) else _STRING
        while (string := pattern.match(reader.text, reader.at)) is None:
            if reader.ended:
                return False
            yield None
        reader.at = string.end()
        return True


def _calls(text: str) -> list[tuple[str, str]]:
    """Return names and arguments of a list of calls; none if it is not such a list."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in strings
            body = ast.parse(text, mode="eval").body
        return [_call(node) for node in body.elts] if isinstance(body, ast.List) else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _call(node: ast.expr) -> tuple[str, str]:
    """Return name and arguments' JSON. Raises ValueError if this is no call with literals by keyword."""
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call by keyword")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** in a call")
        arguments[keyword.arg] = ast.literal_eval(_JsonNames().visit(keyword.value))
    return ast.unparse(node.func), _json(arguments)


class _JsonNames(ast.NodeTransformer):
    """Turns JSON's names for constants into Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node


def _json(value: object) -> str:
    """Return JSON text. Raises ValueError for what JSON does not have."""
    try:
        return json_of(value)
    except TypeError as error:
        raise ValueError(str(error)) from error
