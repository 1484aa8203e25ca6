"""Each format of a structural tag: what it lets through, and what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmfw.core.base.errors import RequestError

from .walking import compiled, demo_tokenizer, fits, walk

DIGIT = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": DIGIT}
CALL = {"type": "tag", "begin": "<tool_call>\n", "content": JSON, "end": "\n</tool_call>"}
ONE, TWO = ({"begin": f"<f={name}>", "content": JSON, "end": "</f>"} for name in "ab")
ANY = {"type": "any_text"}


def text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


def triggered(triggers: list[str], *tags: Any, **more: bool) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": triggers, "tags": list(tags), **more}


def separated(**more: bool) -> dict[str, Any]:
    return {"type": "tags_with_separator", "tags": [ONE, TWO], "separator": ", ", **more}


THINK = {"type": "tag", "begin": "<think>", "content": ANY, "end": "</think>"}
A, B, C = '<f=a>{"n":1}</f>', '<f=b>{"n": 2}</f>', '<tool_call>\n{"n":1}\n</tool_call>'
CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (JSON, ['{"n":1}'], ['{"n":3}', "n"]),
    ({"type": "regex", "pattern": "a/\\d"}, ["a/1"], ["a/b", "a/٣"]),
    ({"type": "grammar", "grammar": 'start: x x\nx: "u" | "v"'}, ["uv"], ["u", "uvu"]),
    (text('say "hi"\n'), ['say "hi"\n'], ['say "hi"', ""]),
    (ANY, ["", "any\ntext ü"], []),
    ({"type": "any_text", "excludes": ["no", "a/b"]}, ["n o a/", ""], ["and no", "xa/b"]),
    (sequence(text("A: "), JSON, text("!")), ['A: {"n":2}!'], ['A: {"n":2}', "A: !"]),
    ({"type": "or", "elements": [text("x"), JSON]}, ["x", '{"n":1}'], ["", 'x{"n":1}']),
    (CALL, [C], ['<tool_call>{"n":1}\n</tool_call>', '{"n":1}', C + "x"]),
    (
        sequence(THINK, JSON),
        ['<think>so\nso</think>{"n":1}', '<think></think>{"n":1}'],
        ["<think>so</think>", '{"n":1}'],
    ),
    (
        sequence({**THINK, "begin": "<x>", "end": "</x>"}, text("z")),
        ["<x>a<b</x>z"],
        ["<x>a</x>", "<x>a</x></x>z"],
    ),
    (triggered(["<tool_call>"], CALL), ["", "hi", C, f"hi {C}{C} bye"], ["<tool_call>", "<tool_call>\n{}"]),
    (triggered(["<f="], ONE, TWO), ["a < f", f"so {A} and {B}."], ["<f=", "<f=c>", '<f=a>{"n":3}</f>']),
    (triggered(["<f=a", "<tool_call>"], ONE, CALL), [f"x{A}y{C}z", "<f=b>"], ["<f=a>"]),
    (triggered(["<f="], ONE, at_least_one=True), [A, f"x {A} y {A}"], ["", "x"]),
    (triggered(["<f="], ONE, stop_after_first=True), ["", "x", f"x {A}"], [f"{A}x", A + A]),
    (triggered(["<f="], ONE, TWO, at_least_one=True, stop_after_first=True), [A, B], ["", f"x{A}", A + B]),
    (separated(), ["", A, f"{A}, {B}, {A}"], [f"{A}{B}", f"{A}, ", "x"]),
    (separated(at_least_one=True), [A, f"{A}, {B}"], [""]),
    (separated(stop_after_first=True), ["", B], [f"{A}, {B}"]),
]


@pytest.mark.parametrize(("format", "right", "wrong"), CASES)
def test_a_format_accepts_exactly_its_outputs(
    format: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    grammar = compiled("structural_tag", {"type": "structural_tag", "format": format})
    assert [output for output in right if not fits(grammar, output)] == []
    assert [output for output in wrong if fits(grammar, output)] == []


@pytest.mark.parametrize(
    "format", [CALL, triggered(["<tool_call>"], CALL, at_least_one=True, stop_after_first=True)]
)
def test_tags_are_written_as_special_tokens(format: dict[str, Any]) -> None:
    grammar = compiled("structural_tag", {"type": "structural_tag", "format": format})
    assert grammar.forced()[0] == demo_tokenizer().added_tokens()["<tool_call>"]
    written = walk(grammar, 0)
    assert written is not None
    assert json.loads(written.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))["n"] in (1, 2)


def test_the_older_form_is_accepted() -> None:
    structures = [{"begin": "<tool_call>\n", "schema": DIGIT, "end": "\n</tool_call>"}]
    tag = {"type": "structural_tag", "structures": structures, "triggers": ["<tool_call>"]}
    assert fits(compiled("structural_tag", tag), f"so: {C}")
    assert not fits(compiled("structural_tag", tag), "so: <tool_call>")


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("{", "not JSON"),
        ([1], "must be an object"),
        ({}, "structural_tag.format has to be an object"),
        ({"format": {"type": "verse"}}, "format.type is 'verse'"),
        (
            {"format": sequence(text("a"), {"type": "tag", "begin": 1})},
            r"format.elements\[1\].begin has to be a text",
        ),
        ({"format": sequence(ANY, JSON)}, "any_text has to be last"),
        ({"format": triggered(["<f="], {**ONE, "begin": "<g>"})}, "starts with no trigger"),
        ({"format": triggered([], ONE)}, "triggers has to be a list"),
        ({"format": triggered(["<f="])}, "tags is empty"),
        ({"format": {**JSON, "json_schema": {"not": {"minimum": 1}}}}, "'minimum' .*format.json_schema"),
        ({"format": {"type": "regex", "pattern": "("}}, "unclosed group"),
        ({"structures": [{"begin": "a"}]}, r"structures\[0\].end has to be a text"),
    ],
)
def test_a_broken_tag_names_its_place(tag: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        compiled("structural_tag", tag)
