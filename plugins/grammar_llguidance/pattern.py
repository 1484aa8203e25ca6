"""Translates regular expressions of JSON schemas to the syntax that llguidance reads.

Validators in Python match with `re.search`; llguidance uses Rust's syntax. `\\d`, `\\w`, `\\s`, `$` and the
escapes differ between the two. This module therefore parses a pattern with Python's own parser and writes a
new pattern from the tree, with character classes spelled out and anchors at both ends. The old pattern also
finds every string that the new pattern matches. Does not depend on schemas.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from functools import cache
from typing import Any

# The standard library's own parser; there is no public one.
_parser: Any = importlib.import_module("re._parser")
_c: Any = importlib.import_module("re._constants")

MAX_LENGTH = 20_000  # characters
ANYTHING = "(?s:.*)"

_NARROW = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t-\r\x20"}  # characters that both ECMA-262 and Python match
_SURROGATES = (0xD800, 0xDFFF)
_UNWRITTEN = r"\x{B}"
"""A control character that JSON writes as \\u000B only, which no output has (`json_text`).

No class contains it: llguidance 1.9 takes a class of all control characters for one with `"` and `\\`, too.
"""


@cache
def _wide(letter: str) -> str:
    """Return the characters that Python's `\\d`, `\\w` or `\\s` match, as the inside of a character class.

    Computed with Python itself, because Python and llguidance use different versions of Unicode.
    """
    fits = {"d": str.isdecimal, "w": lambda char: char == "_" or char.isalnum(), "s": str.isspace}[letter]
    parts: list[str] = []
    codes = (code for code in range(sys.maxunicode + 1) if fits(chr(code)))
    for _, run in itertools.groupby(enumerate(codes), lambda numbered: numbered[1] - numbered[0]):
        members = [code for _, code in run]
        parts.append(f"{_char(members[0])}-{_char(members[-1])}")
    return "".join(parts)


class PatternError(ValueError):
    """A pattern cannot be translated; the message says why."""


def translate(pattern: str, *, exact: bool = False) -> str:
    """Return a pattern for whole strings, which matches only if `re.search` finds the given pattern.

    Args:
        pattern: pattern of a JSON schema, which may match anywhere in a string.
        exact: whether to match all strings that Python's `re.search` finds. If false, `\\d` and `\\w` match
            ASCII only, so that Python and ECMA-262 validators both accept the output.

    Raises:
        PatternError: Python cannot parse the pattern, or no automaton can match it.
    """
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"it has {len(pattern)} characters; the limit is {MAX_LENGTH}")
    try:
        tree = _parser.parse(pattern)
        if tree.state.flags & ~re.UNICODE:
            raise PatternError("it sets flags")
        return f"^(?:{_Writer(exact).alternatives(list(tree), start=False, end=False)})$"
    except (re.error, OverflowError) as error:
        raise PatternError(f"Python's regular expressions do not have it: {error}") from error
    except RecursionError:
        raise PatternError("it is nested too deeply") from None


def all_but(words: list[str]) -> str:
    """Return a pattern that matches every string except these."""
    branches: list[str] = []
    prefixes = {""} | {word[:i] for word in words for i in range(1, len(word) + 1)}
    for prefix in sorted(prefixes):
        following = sorted({longer[len(prefix)] for longer in prefixes if _is_next(prefix, longer)})
        other = f"[^{''.join(map(_escape, following))}]" if following else r"[\s\S]"
        branches.append(f"{_escape(prefix)}{other}[\\s\\S]*")
        if prefix not in words:
            branches.append(_escape(prefix))
    return rf"\A(?:{'|'.join(branches)})\Z"


def _is_next(prefix: str, longer: str) -> bool:
    return len(longer) == len(prefix) + 1 and longer.startswith(prefix)


def _escape(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text)


class _Writer:
    """Writes a parse tree of Python's `re` as a pattern in Rust's syntax.

    Args:
        exact: as for `translate`.
    """

    def __init__(self, exact: bool) -> None:
        self._inner = _wide if exact else _NARROW.__getitem__
        # Python's `$` also matches before a line break at the end of the string.
        self._end = r"\n?" if exact else ""

    def alternatives(self, items: list[Any], *, start: bool, end: bool) -> str:
        """Return a pattern for whole strings in which these items occur.

        Args:
            items: items of the parse tree.
            start, end: whether the items must be at the start, or at the end, of the string.
        """
        tail = ""
        while items and _is_anchor(items[0], _c.AT_BEGINNING, _c.AT_BEGINNING_STRING):
            items, start = items[1:], True
        while items and _is_anchor(items[-1], _c.AT_END, _c.AT_END_STRING):
            tail = self._end if items[-1][1] is _c.AT_END else ""
            items, end = items[:-1], True
        if len(items) == 1 and not tail:
            op, value = items[0]
            if op is _c.BRANCH:
                return "|".join(self.alternatives(list(branch), start=start, end=end) for branch in value[1])
            if op is _c.SUBPATTERN and not (value[1] or value[2]):
                return self.alternatives(list(value[3]), start=start, end=end)
        return ("" if start else ANYTHING) + self._sequence(items) + tail + ("" if end else ANYTHING)

    def _sequence(self, items: Any) -> str:
        return "".join(self._item(op, value) for op, value in items)

    def _item(self, op: Any, value: Any) -> str:
        if op is _c.LITERAL:
            return _char(value)
        if op is _c.NOT_LITERAL:
            return f"[^{_char(value)}{_UNWRITTEN}]"
        if op is _c.ANY:
            return rf"[^\n{_UNWRITTEN}]"
        if op is _c.IN:
            return self._class(value)
        if op is _c.BRANCH:
            return f"(?:{'|'.join(map(self._sequence, value[1]))})"
        if op is _c.SUBPATTERN:
            if value[1] or value[2]:
                raise PatternError("it sets flags")
            return f"(?:{self._sequence(value[3])})"
        if op is _c.MAX_REPEAT or op is _c.MIN_REPEAT:
            return self._repeat(*value)
        if op is _c.AT and value in (_c.AT_BOUNDARY, _c.AT_NON_BOUNDARY):
            raise PatternError("word boundaries (\\b) are not supported")
        if op is _c.AT:
            raise PatternError("an anchor (^ or $) inside the pattern is not supported")
        if op in (_c.ASSERT, _c.ASSERT_NOT):
            raise PatternError("lookahead and lookbehind are not supported")
        if op in (_c.GROUPREF, _c.GROUPREF_EXISTS):
            raise PatternError("references to groups are not supported")
        raise PatternError(f"{str(op).lower()} is not supported")

    def _repeat(self, low: int, high: Any, items: Any) -> str:
        inner = self._sequence(items)
        if not inner:
            return ""
        bounds = {(0, _c.MAXREPEAT): "*", (1, _c.MAXREPEAT): "+", (0, 1): "?"}.get((low, high))
        if bounds is None:
            bounds = f"{{{low},{'' if high is _c.MAXREPEAT else high}}}"
        return f"(?:{inner}){bounds}"

    def _class(self, members: Any) -> str:
        negated = members[0][0] is _c.NEGATE
        categories = {str(value).lower() for op, value in members if op is _c.CATEGORY}
        if any(name.replace("_not_", "_") in categories for name in categories if "_not_" in name):
            return "[^\\x{0}-\\x{10FFFF}]" if negated else "(?s:.)"  # [\s\S]: any character
        written = [self._member(op, value, negated) for op, value in members[negated:]]
        return f"[^{''.join(written)}{_UNWRITTEN}]" if negated else f"[{''.join(written)}]"

    def _member(self, op: Any, value: Any, negated: bool) -> str:
        if op is _c.LITERAL:
            return _char(value)
        if op is _c.RANGE:
            return _range(*value)
        name = str(value).lower()  # category_digit, category_not_space, …
        letter = {"digit": "d", "word": "w", "space": "s"}[name.rpartition("_")[2]]
        # A class must not become larger: a negated class excludes the larger meaning of a letter; any other
        # class includes the smaller meaning.
        if "_not_" in name:
            return f"[^{(self._inner if negated else _wide)(letter)}{_UNWRITTEN}]"
        return (_wide if negated else self._inner)(letter)


def _is_anchor(item: tuple[Any, Any], *kinds: Any) -> bool:
    return item[0] is _c.AT and item[1] in kinds


def _char(code: int) -> str:
    if _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise PatternError("half of a surrogate pair is not a character")
    char = chr(code)
    return char if char.isalnum() and char.isascii() else f"\\x{{{code:X}}}"


def _range(low: int, high: int) -> str:
    """Return the characters from `low` to `high` as the inside of a character class.

    Leaves out surrogates, because no text contains them, and `_UNWRITTEN`.
    """
    parts, start = [], low
    for first, last in ((0xB, 0xB), _SURROGATES):
        parts.append((start, min(high, first - 1)))
        start = max(start, last + 1)
    return "".join(f"{_char(a)}-{_char(b)}" for a, b in (*parts, (start, high)) if a <= b)
