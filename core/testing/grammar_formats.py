"""Regular expressions, context-free grammars and structural tags, with texts that match and texts that do not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmfw.core.base.request import GrammarSpec

from .grammar_case import SPECIAL, GrammarExample
from .schema_example import closed


def _tag(format: Any, fits: Sequence[str], misfits: Sequence[str], **more: Any) -> GrammarExample:
    source = {"type": "structural_tag", **({} if format is None else {"format": format}), **more}
    return GrammarExample("structural_tag", json.dumps(source), fits, misfits)


def _text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def _sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


def _or(*elements: Any) -> dict[str, Any]:
    return {"type": "or", "elements": list(elements)}


def _triggered(triggers: Sequence[str], *tags: Any, **more: bool) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": list(tags), **more}


def _separated(**more: bool) -> dict[str, Any]:
    return {"type": "tags_with_separator", "tags": [_ONE, _TWO], "separator": ", ", **more}


_DIGIT = closed({"n": {"enum": [1, 2]}}, ["n"])
_JSON = {"type": "json_schema", "json_schema": _DIGIT}
_CALL = {"type": "tag", "begin": "<call>\n", "content": _JSON, "end": "\n</call>"}
_ONE, _TWO = ({"begin": f"<f={name}>", "content": _JSON, "end": "</f>"} for name in "ab")
_ANY = {"type": "any_text"}
_THINK = {"type": "tag", "begin": "<think>", "content": _ANY, "end": "</think>"}
_MARKED = {"begin": f"{SPECIAL}a", "content": _JSON, "end": SPECIAL}
_A, _B, _C = '<f=a>{"n":1}</f>', '<f=b>{"n":2}</f>', '<call>\n{"n":1}\n</call>'
_M = f'{SPECIAL}a{{"n":1}}{SPECIAL}'

PLAIN = (
    GrammarExample("regex", "a/[0-9]", ("a/1",), ("a/b", "a/")),
    GrammarExample("regex", "a/\\d\\w?", ("a/1", "a/1b"), ("a/b", "a/")),
    GrammarExample("regex", '"a"', ('"a"',), ("a", '"a')),
    GrammarExample("ebnf", 'start: x x\nx: "u" | "v"', ("uv", "uu"), ("u", "uvu")),
    GrammarExample("ebnf", 'root ::= "a" | "b" root', ("a", "ba", "bba"), ("", "b", "ab")),
    GrammarExample("ebnf", 'root ::= item+\nitem ::= "- " [a-c] "\\n"', ("- a\n", "- a\n- c\n"), ("", "- d\n", "- a")),
)  # fmt: skip

TAGS = (
    _tag(_JSON, ('{"n":1}', '{"n":2}'), ('{"n":3}', "n", "{}")),
    _tag({"type": "regex", "pattern": "a/\\d"}, ("a/1",), ("a/b", "a/")),
    _tag({"type": "grammar", "grammar": 'start: x x\nx: "u" | "v"'}, ("uv",), ("u", "uvu")),
    _tag(_text('say "hi"\n'), ('say "hi"\n',), ('say "hi"', "")),
    _tag(_ANY, ("", "any\ntext ü"), ()),
    _tag({"type": "any_text", "excludes": ["no", "a/b"]}, ("n o a/", ""), ("and no", "xa/b", "no")),
    _tag({"type": "any_text", "excludes": None}, ("", "no"), ()),
    _tag(_sequence(_text("A: "), _JSON, _text("!")), ('A: {"n":2}!',), ('A: {"n":2}', "A: !")),
    _tag(_sequence(_text("a"), _text("b"), _ANY), ("ab", "abc"), ("a", "b", "ac")),
    _tag(_or(_text("x"), _JSON), ("x", '{"n":1}'), ("", 'x{"n":1}')),
    _tag(_or(_sequence(_text("x"), _text("y")), _text("z")), ("xy", "z"), ("x", "xz", "y")),
    _tag(_CALL, (_C,), ('<call>{"n":1}\n</call>', '{"n":1}', _C + "x", _C[:-1])),
    _tag({"type": "tag", "begin": "", "content": _text("a"), "end": ""}, ("a",), ("", "aa")),
    _tag(_sequence(_THINK, _JSON), ('<think>so\nso</think>{"n":1}', '<think></think>{"n":1}'), ("<think>so</think>", '{"n":1}')),
    _tag(_sequence({**_THINK, "begin": "<x>", "end": "</x>"}, _text("z")), ("<x>a<b</x>z",), ("<x>a</x>", "<x>a</x></x>z")),
    _tag(_sequence({**_THINK, "content": {"type": "any_text", "excludes": ["no"]}}, _text("z")), ("<think>a</think>z",), ("<think>no</think>z", "<think>a</think>")),
    _tag(_triggered(["<call>"], _CALL), ("", "hi", _C, f"hi {_C}{_C} bye"), ("<call>", "<call>\n{}")),
    _tag(_triggered(["<f="], _ONE, _TWO), ("a < f", f"so {_A} and {_B}."), ("<f=", "<f=c>", '<f=a>{"n":3}</f>')),
    _tag(_triggered(["<f=a", "<call>"], _ONE, _CALL), (f"x{_A}y{_C}z", "<f=b>"), ("<f=a>", "<call>")),
    _tag(_triggered(["<f="], _ONE, at_least_one=True), (_A, f"x {_A} y {_A}"), ("", "x")),
    _tag(_triggered(["<f="], _ONE, stop_after_first=True), ("", "x", f"x {_A}"), (f"{_A}x", _A + _A)),
    _tag(_triggered(["<f="], _ONE, _TWO, at_least_one=True, stop_after_first=True), (_A, _B), ("", f"x{_A}", _A + _B)),
    _tag(_triggered(["<f="], {**_ONE, "begin": "<f="}), ("", '<f={"n":1}</f>'), ("<f=a",)),
    _tag(_separated(), ("", _A, f"{_A}, {_B}, {_A}"), (f"{_A}{_B}", f"{_A}, ", "x")),
    _tag(_separated(at_least_one=True), (_A, f"{_A}, {_B}"), ("",)),
    _tag(_separated(stop_after_first=True), ("", _B), (f"{_A}, {_B}",)),
    _tag(_separated(at_least_one=True, stop_after_first=True), (_A, _B), ("", f"{_A}, {_B}")),
    _tag({"type": "tag", **_MARKED}, (_M,), (_M[:-1], '{"n":1}', SPECIAL)),
    _tag(_text(f"a{SPECIAL}b{SPECIAL}"), (f"a{SPECIAL}b{SPECIAL}",), ("ab", f"a{SPECIAL}b", f"{SPECIAL}b{SPECIAL}")),
    _tag(_sequence(_ANY, {"type": "tag", **_MARKED}), (_M, f"so {_M}"), ("", "so ", f"{_M}x")),
    _tag(_triggered([SPECIAL], _MARKED), ("", "x", f"x{_M}y{_M}"), (SPECIAL, f"{SPECIAL}a", f"{SPECIAL}b")),
)  # fmt: skip

FORMATS = (*PLAIN, *TAGS)


def named_in(spec: GrammarSpec) -> set[str]:
    """Return what a backend that refuses a grammar may name as unread.

    Its kind, the keys in its JSON (the keywords of a schema, among others), and the types in it.
    """
    found = {spec.kind}
    if spec.kind in ("json_schema", "structural_tag"):
        found.update(_names(json.loads(spec.source)))
    return found


def _names(value: Any) -> Iterator[str]:
    """Yield the keys of all objects in a JSON value, and the texts that they have as `type`."""
    if isinstance(value, Mapping):
        yield from value
        if isinstance(value.get("type"), str):
            yield value["type"]
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in children:
        yield from _names(child)
