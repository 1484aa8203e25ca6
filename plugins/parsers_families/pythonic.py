"""The tool parser `pythonic`: tool calls as a Python list of function calls (Llama 3.2 and 4)."""

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
    """Reads `[get_weather(city="Paris", n=3), stop()]` at the start of the text, or after <|python_start|>.

    A list is emitted once it is complete, and only if each item is a call of a known tool with literals as
    keyword arguments (including `true`, `false` and `null`). The closing bracket of the last list may be
    missing.
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
        """Read a list and return its text. Adds the closing bracket if only that is missing at the end.

        Returns "" if the list does not start with a call of a known tool, or is incomplete.
        """
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
    """Return the (name, arguments) of each call in a list; [] if the text is not a list of calls."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in strings
            body = ast.parse(text, mode="eval").body
        return [_call(node) for node in body.elts] if isinstance(body, ast.List) else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _call(node: ast.expr) -> tuple[str, str]:
    """Return a call's name, and its arguments as JSON.

    Raises:
        ValueError: the node is not a call, or has an argument that is not a literal passed by keyword.
    """
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call by keyword")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** in a call")
        arguments[keyword.arg] = ast.literal_eval(_JsonNames().visit(keyword.value))
    return ast.unparse(node.func), _json(arguments)


class _JsonNames(ast.NodeTransformer):
    """Replaces JSON's names of constants with their Python values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node


def _json(value: object) -> str:
    """Return a value as JSON text.

    Raises:
        ValueError: JSON cannot represent the value.
    """
    try:
        return json_of(value)
    except TypeError as error:
        raise ValueError(str(error)) from error
