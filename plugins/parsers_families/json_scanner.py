"""Finds the end of a JSON object, or the end of its valid part, in text that arrives in pieces."""

from __future__ import annotations

import re

_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{0,4})')
_SCALAR_START = frozenset("-0123456789tfn")
_SCALAR_CHARS = frozenset("+-.0123456789eEtrufalsn")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_SO_FAR = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?:\.[0-9]+)?[eE][+-]?[0-9]*)?)?")
_LITERALS = ("true", "false", "null")


class JsonScanner:
    """An incremental scanner of one JSON object or array. The accepted text is always a prefix of valid JSON.

    Attributes:
        depth: number of open objects and arrays.
        done: whether the object or array is complete.
        broken: whether the character after the accepted text is invalid there.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._open: list[str] = []  # closing brackets that are still to come
        self._next = "start"  # what may come next: start, value, element, key, member, colon or more
        self._in_string = False
        self._escape = ""  # incomplete escape sequence
        self._scalar = ""  # incomplete number or literal

    @property
    def depth(self) -> int:
        return len(self._open)

    def feed(self, text: str, at: int = 0, *, depth: int = 0) -> int:
        """Scan text from index `at`; return the index after the last accepted character.

        Stops at the end of the text, at invalid JSON, or after the bracket that brings the nesting down to
        `depth`.
        """
        while at < len(text) and not self.done and not self.broken:
            if self._in_string:
                at = self._string(text, at)
            elif self._scalar:
                at = self._more_scalar(text, at)
            else:
                char = text[at]
                if char not in _SPACE and not self._structure(char):
                    self.broken = True
                    break
                at += 1
                if char in "}]" and self.depth <= depth:
                    break
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escape:
            self._escape += text[at]
            if _ESCAPE.fullmatch(self._escape) is None:
                self.broken = True
                return at
            if len(self._escape) == (6 if self._escape[1] == "u" else 2):
                self._escape = ""
            return at + 1
        match = _PLAIN.match(text, at)
        assert match is not None
        at = match.end()
        if at == len(text):
            return at
        if text[at] == '"':
            self._in_string = False
        elif text[at] == "\\":
            self._escape = "\\"
        else:
            self.broken = True
            return at
        return at + 1

    def _more_scalar(self, text: str, at: int) -> int:
        scalar = self._scalar
        if text[at] in _SCALAR_CHARS:
            self._scalar += text[at]
            self.broken = not _may_be_scalar(self._scalar)
            return at if self.broken else at + 1
        self._scalar = ""
        self.broken = scalar not in _LITERALS and _NUMBER.fullmatch(scalar) is None
        return at

    def _structure(self, char: str) -> bool:
        """Accept a character outside strings and scalars; return whether it is valid there."""
        expected = self._next
        if char in "}]" and expected in ("member", "element", "more"):
            return self._close(char)
        if expected in ("key", "member"):
            self._next, self._in_string = "colon", True
            return char == '"'
        if expected == "colon":
            self._next = "value"
            return char == ":"
        if expected == "more":
            self._next = "key" if self._open[-1] == "}" else "value"
            return char == ","
        if char == "{":
            self._open.append("}")
            self._next = "member"
            return True
        if char == "[":
            self._open.append("]")
            self._next = "element"
            return True
        self._next = "more"
        if char == '"':
            self._in_string = True
        elif char in _SCALAR_START:
            self._scalar = char
        else:
            return False
        return expected != "start"

    def _close(self, char: str) -> bool:
        if self._open[-1] != char:
            return False
        self._open.pop()
        self._next = "more"
        self.done = not self._open
        return True


def _may_be_scalar(text: str) -> bool:
    return _NUMBER_SO_FAR.fullmatch(text) is not None or any(word.startswith(text) for word in _LITERALS)
