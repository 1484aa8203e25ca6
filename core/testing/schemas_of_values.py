"""JSON schemas of numbers, strings and constants, with valid and invalid values."""

from __future__ import annotations

from .schema_example import BOOL, DRAFT_4, DRAFT_6, DRAFT_7, STR
from .schema_example import SchemaExample as Example

NUM = {"type": "number"}

NUMBERS = (
    Example({"type": "integer", "minimum": -2.5, "exclusiveMaximum": 7}, (-2, 0, 6), (-3, 7, 2.5)),
    Example({"type": "integer", "minimum": -(2**63), "maximum": 2**64}, (0, -5, 12345), ("a", 0.5)),
    Example({"type": "integer", "minimum": 2**60}, (2**61,), (5, 2**59), is_hard=True),
    Example({"type": "integer", "minimum": 3, "exclusiveMinimum": 3}, (4, 10), (3, 0)),
    Example({"type": "integer", "minimum": 5, "exclusiveMinimum": 3}, (5, 6), (4, 3)),
    Example({"type": "integer", "maximum": 5, "exclusiveMaximum": 5}, (4, -10), (5, 6)),
    Example({"type": "integer", "maximum": 3, "exclusiveMaximum": 5}, (3, -1), (4, 5)),
    Example({"type": "integer", "multipleOf": 5, "exclusiveMinimum": 5, "exclusiveMaximum": 20}, (10, 15), (5, 20, 0)),
    Example({"type": "integer", "multipleOf": 5, "exclusiveMinimum": 6, "exclusiveMaximum": 19}, (10, 15), (5, 20)),
    Example({"type": "integer", "multipleOf": 3}, (-3, 300000), (1, -1, 3.5)),
    Example({"type": "integer", "exclusiveMinimum": -1.5, "exclusiveMaximum": 2.5}, (-1, 2), (-2, 3)),
    Example({"type": ["integer", "null"], "exclusiveMinimum": 3, "exclusiveMaximum": 6}, (4, 5, None), (3, 6)),
    Example({"type": ["number", "integer"], "minimum": 0.5}, (0.5, 1, 2.25), (0, "a")),
    Example({"minimum": 3, "maximum": 4}, (3, 4, "a", None), (2, 5)),
    Example({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, (0.5, 0.25, 0.75), (0, 1, -0.5, 1.5)),
    Example({"type": "number", "exclusiveMinimum": 0.25}, (0.5, 1), (0.25, 0)),
    Example({"type": "number", "exclusiveMaximum": 0.75}, (0.5, -1), (0.75, 1)),
    Example({"type": "number", "exclusiveMinimum": 10**10, "exclusiveMaximum": 10**11}, (10**10 + 1, 10**11 - 1), (10**10, 10**11, 5)),
    Example({"type": "number", "exclusiveMinimum": 10**8}, (10**8 + 0.5, 10**8 + 1), (10**8, 5)),
    Example({"type": "number", "exclusiveMinimum": 0.12345678}, (1,), (0, 0.12345678), is_hard=True),
    Example({"type": "number", "minimum": 0.1, "maximum": 0.3}, (0.1, 0.2, 0.3), (0, 0.05, 0.35, 1)),
    Example({"type": "number", "minimum": -0.5, "maximum": 1.0}, (-0.5, 0, 0.25, 1), (-0.75, -1, 1.5)),
    Example({"type": "number", "maximum": 1e-12}, (0, -1), (1, 0.5), is_hard=True),
    Example({"type": "number", "multipleOf": 0.25}, (0.25, 0.75, 1, -1.75), (0.1, 0.3)),
    Example({"type": "number", "multipleOf": 1.5}, (0, 1.5, 3, 4.5), (1, 2, 2.5)),
    Example({"type": "number", "multipleOf": 0.01}, (), (0.005, 0.001), is_hard=True),
    Example({"type": "integer", "allOf": [{"multipleOf": 6}, {"multipleOf": 4}]}, (0, 12, 24), (4, 6, 8)),
    Example({"type": "integer", "allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]}, (0,), (65537, 65539), is_hard=True),
    Example({"$schema": DRAFT_4, "type": "integer", "maximum": 5, "exclusiveMaximum": True}, (4, 0), (5, 6)),
    Example({"$schema": DRAFT_4, "type": "integer", "minimum": 3, "exclusiveMinimum": False}, (3, 4), (2,)),
    Example({"$schema": DRAFT_4, "type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 2}, (1.5, 2), (1, 2.5)),
    Example({"$schema": DRAFT_6, "type": "integer", "exclusiveMinimum": 3}, (4,), (3,)),
)  # fmt: skip

FEB_29 = "2024-02-29", "2000-02-29", "1996-02-29"
NO_DATES = (
    "2023-02-29",
    "1900-02-29",
    "2023-04-31",
    "2023-00-10",
    "2023-10-00",
    "2023-13-01",
    "2023-1-1",
    "0000-01-01",
)
TIMES = "12:30:00Z", "23:59:59.5+01:00", "00:00:00-11:30"
NO_TIMES = "24:00:00Z", "12:60:00Z", "12:30:60Z", "12:30:00", "12:30Z"

STRINGS = (
    Example({"type": "string", "minLength": 2.0, "maxLength": 4.0}, ("ab", "abcd"), ("a", "abcde")),
    Example({"type": "string", "minLength": 0, "maxLength": 0}, ("",), ("a",)),
    Example({"type": "string", "minLength": 1}, ("a", "abc"), ("",)),
    Example({"type": "string", "maxLength": 10**9}, ("", "abc"), (1,)),
    Example({"type": "string", "maxLength": 100_000}, ("", "abc"), (1,)),
    Example({"type": "string", "minLength": 10**9}, (), ("", "abc"), is_hard=True),
    Example({"maxLength": 1}, ("", "a", 12, None), ("ab",)),
    Example({"type": "string", "format": "date"}, (*FEB_29, "2023-12-31", "0001-01-01", "2023-06-30"), NO_DATES),
    Example({"type": "string", "format": "time"}, TIMES, NO_TIMES),
    Example({"type": "string", "format": "date-time"}, [f"2024-02-29T{time}" for time in TIMES], ("2024-02-29", "2024-02-29T12:30:00", "2023-02-29T12:30:00Z")),
    Example({"type": "string", "format": "ipv4"}, ("192.168.0.1",), ("256.1.1.1", "1.1.1", "a")),
    Example({"type": "string", "format": "email"}, ("a@example.com",), ("a", "@", "a b@c")),
    Example({"type": "string", "format": "date", "pattern": "^19"}, ("1999-12-31",), ("2024-02-28", "19")),
    Example({"type": "string", "format": "shade of blue", "maxLength": 3}, ("abc", ""), ("abcd",)),
    Example({"format": "date"}, ("2024-02-28", 5, None), ("2024",)),
)  # fmt: skip


def _pattern(
    pattern: str, fits: tuple[str, ...], misfits: tuple[str, ...], *, is_hard: bool = False
) -> Example:
    return Example({"type": "string", "pattern": pattern}, fits, misfits, is_hard)


PATTERNS = (
    _pattern("^\\w\\W\\d\\D\\s\\S$", ("a-1b c", "_ 2-\nd"), ("aa1b c", "a-bb c", "a-12 c", "a-1bcc", "a-1b  ", "--1b c")),
    _pattern("^[^\\w][^\\s\\d][^a-z/]$", ("-aA", "++0"), ("aaA", "- A", "-1A", "-aa", "-a/")),
    _pattern("^[\\s\\S]{2}$", ("ab", "a\n"), ("a", "abc")),
    _pattern("^a[^\\s\\S]*$", ("a",), ("ab", "")),
    _pattern("^[\\d-]+$", ("1-2", "-"), ("", "a", "1a")),
    _pattern("^[^\\d]$", ("a", "-"), ("1", "")),
    _pattern("^[^\\W\\d]$", ("a", "_"), ("1", "-")),
    _pattern("^[\\W]$", ("-", " "), ("a", "1", "_")),
    _pattern("^[^ab]$", ("c", "-"), ("a", "b", "")),
    _pattern("^[^a]$", ("b",), ("a", "", "bb")),
    _pattern('^[^"]$', ("a", "\n", "\\"), ('"', "", "aa")),
    _pattern("^[^\\\\]$", ("a", "\n", '"'), ("\\", "")),
    _pattern("^[\\u0001-!#-z]*$", ("a", "", "!\n"), ('"', 'a"')),
    _pattern("^[a-cx-z0]$", ("a", "c", "y", "0"), ("d", "w", "1")),
    _pattern("^.$", ("a", "-"), ("\n", "", "ab")),
    _pattern("^a{2}$", ("aa",), ("a", "aaa")),
    _pattern("^a{2,}$", ("aa", "aaaa"), ("a", "")),
    _pattern("^a{1,3}$", ("a", "aaa"), ("", "aaaa")),
    _pattern("^ab?$", ("a", "ab"), ("abb", "b")),
    _pattern("^a*$", ("", "aaa"), ("b",)),
    _pattern("^(ab)+$", ("ab", "abab"), ("", "a", "aba")),
    _pattern("^a+?(?:b|c)*?$", ("a", "aabc"), ("", "b", "ad")),
    _pattern("^(a|b)$", ("a", "b"), ("ab", "", "c")),
    _pattern("^(?:a|bc)d$", ("ad", "bcd"), ("a", "bd", "abcd")),
    _pattern("^a|^b", ("a", "bx"), ("xa", "")),
    _pattern("a$|b$", ("a", "xb"), ("ax", "")),
    _pattern("(ab|cd)", ("ab", "xcdx"), ("", "ac")),
    _pattern("^(a|b)x", ("ax", "bxy"), ("a", "cax")),
    _pattern("^a()b$", ("ab",), ("a", "b")),
    _pattern("^\\.\\*\\[\\\\$", (".*[\\",), ("a*[\\", ".*[")),
    _pattern("^é\\u00fc$", ("éü",), ("é", "eu")),
    _pattern("^[à-ÿ]+$", ("é", "àÿ"), ("a", "")),
    _pattern("^[\\u0001-\\uffff]$", ("a", "中"), ("", "ab")),
    _pattern("^a\\tb$", ("a\tb",), ("atb", "a b")),
    _pattern("", ("", "abc"), ()),
    _pattern("^$", ("",), ("a",)),
    _pattern("^(?!a)b$", ("b",), ("a", "ab"), is_hard=True),
    _pattern("^(a|b)\\1$", ("aa", "bb"), ("ab", "ba", "a1"), is_hard=True),
    _pattern("\\bfoo", ("foo", "a foo"), ("afoo", "bfoo"), is_hard=True),
    _pattern("\\Boo$", ("foo",), ("oo", "f oo"), is_hard=True),
    _pattern("a$b", (), ("ab", "a$b", "a"), is_hard=True),
)  # fmt: skip

CONSTANTS = (
    Example({"const": 1.0}, (1,), (2, "1", True)),
    Example({"const": {"a": [1.0, 2.5, None, True], "ü": '\n"'}}, ({"a": [1, 2.5, None, True], "ü": '\n"'},), ({"a": [2, 2.5, None, True], "ü": '\n"'}, {"a": []})),
    Example({"const": -1.5}, (-1.5,), (1.5, -1)),
    Example({"const": 0.1}, (0.1,), (0.2, 0)),
    Example({"const": -3}, (-3,), (3, 0)),
    Example({"const": "a\tb\n\r\f\b"}, ("a\tb\n\r\f\b",), ("atb", "a")),
    Example({"const": ""}, ("",), ("a", None)),
    Example({"const": None}, (None,), ("", False, 0)),
    Example({"const": True}, (True,), (1, False)),
    Example({"const": []}, ([],), ([1], {})),
    Example({"const": 2**60}, (), (5, 0), is_hard=True),
    Example({"const": 1e-10}, (), (0, 1), is_hard=True),
    Example({"enum": ["\u0001"]}, (), ("a", ""), is_hard=True),
    Example({"enum": ["\x7f"]}, (), ("a", ""), is_hard=True),
    Example({"enum": [{"\u0001": 1}]}, (), ({}, {"a": 1}), is_hard=True),
    Example({"enum": ["a", 1, 1.0, None, [], {"b": False}, -0.5]}, ("a", 1, None, [], {"b": False}, -0.5), ("b", 0, {"b": True}, [1])),
    Example({"enum": ["a", 1, None], "type": ["string", "null"]}, ("a", None), (1, "b")),
    Example({"enum": ["a", "b"], "const": "a"}, ("a",), ("b",)),
    Example({"$schema": DRAFT_4, "type": "integer", "const": 3}, (3, 5), ("a",)),
    Example({"$schema": DRAFT_6, "type": "integer", "const": 3}, (3,), (5,)),
    Example({"type": ["boolean", "integer", "null"]}, (True, 1, None), ("a", 1.5, [])),
    Example({"type": ["integer", "number"]}, (1, 1.5), ("a",)),
    Example({"type": ["null"]}, (None,), (0, "")),
    Example({"type": "null", "title": "t", "default": 3, "examples": [1], "nullable": True}, (None,), (3, 1)),
    Example(True, (1, "a", None, [], {}), ()),
    Example({}, (1, "a", [1], {"a": 1}), ()),
    Example({"$schema": "https://schemas.example/mine", "type": "integer"}, (1,), ("a",)),
    Example({"$schema": DRAFT_7, "type": ["integer", "boolean"]}, (1, True), ("a",)),
    Example({"anyOf": [STR, BOOL, NUM]}, ("a", False, 1.5), (None, [])),
)  # fmt: skip

VALUES = (*NUMBERS, *STRINGS, *PATTERNS, *CONSTANTS)
