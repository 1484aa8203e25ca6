"""Each way to say what an output has to be reaches the engine as one grammar, or is a 400 that names its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest
from openai.lib._parsing import type_to_response_format_param

from llmfw.api.schemas.common import GRAMMAR_FIELDS, GenerationRequest
from llmfw.api.text.structured import format_of, structure_of, tag_spec
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import MARKERS, Served, byte_tokenizer, serving

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHOICES = {
    "type": "or",
    "elements": [{"type": "const_string", "value": "yes"}, {"type": "const_string", "value": "no"}],
}
NEW_TAG = {"type": "structural_tag", "format": {"type": "any_text", "excludes": ["x"]}}
OLD_TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f"],
}
OLD_TAG_FORMAT = {
    "type": "triggered_tags",
    "triggers": ["<f"],
    "tags": [
        {
            "type": "tag",
            "begin": "<f>",
            "content": {"type": "json_schema", "json_schema": SCHEMA},
            "end": "</f>",
        }
    ],
}


def spec_of(**fields: Any) -> GrammarSpec | None:
    structure = structure_of(GenerationRequest(**fields))
    return structure.spec if structure else None


def named(schema: Any, **others: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **others}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": named(SCHEMA)},
        {"response_format": named(SCHEMA, strict=False, description="d")},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"json_schema": SCHEMA},
        {"json_schema": json.dumps(SCHEMA)},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA, "regex": None}},
    ],
)
def test_all_ways_to_give_a_schema_agree(fields: dict[str, Any]) -> None:
    spec = spec_of(**fields)
    assert spec is not None
    assert spec.kind == "json_schema"
    assert json.loads(spec.source) == SCHEMA


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        {"structured_outputs": {"json_object": True}},
    ],
)
def test_json_object_allows_any_object(fields: dict[str, Any]) -> None:
    spec = spec_of(**fields)
    assert spec is not None
    assert json.loads(spec.source) == {"type": "object"}


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "a+"},
        {"guided_regex": "a+"},
        {"structured_outputs": {"regex": "a+"}},
        {"response_format": {"type": "regex", "pattern": "a+"}},
    ],
)
def test_all_ways_to_give_a_regex_agree(fields: dict[str, Any]) -> None:
    assert spec_of(**fields) == GrammarSpec("regex", "a+")


@pytest.mark.parametrize("name", ["ebnf", "guided_grammar"])
def test_all_ways_to_give_a_grammar_agree(name: str) -> None:
    assert spec_of(**{name: "root ::= x"}) == GrammarSpec("ebnf", "root ::= x")
    assert spec_of(structured_outputs={"grammar": "root ::= x"}) == GrammarSpec("ebnf", "root ::= x")


@pytest.mark.parametrize(
    "fields",
    [
        {"choice": ["yes", "no"]},
        {"guided_choice": ["yes", "no"]},
        {"structured_outputs": {"choice": ["yes", "no"]}},
    ],
)
def test_a_choice_is_one_of_its_texts(fields: dict[str, Any]) -> None:
    assert spec_of(**fields) == tag_spec(CHOICES)


@pytest.mark.parametrize(("tag", "form"), [(NEW_TAG, NEW_TAG["format"]), (OLD_TAG, OLD_TAG_FORMAT)])
def test_both_forms_of_a_structural_tag_are_read(tag: dict[str, Any], form: dict[str, Any]) -> None:
    for fields in ({"structural_tag": tag}, {"structural_tag": json.dumps(tag)}, {"response_format": tag}):
        assert spec_of(**fields) == tag_spec(form)


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"regex": None}])
def test_output_is_unconstrained_by_default(fields: dict[str, Any]) -> None:
    assert spec_of(**fields) is None


def test_tgis_json_object_says_what_to_send() -> None:
    given = {"type": "json_object", "value": {"type": "object"}}
    with pytest.raises(RequestError, match=r'send .*"schema"') as caught:
        spec_of(response_format=given)
    assert caught.value.param == "response_format.value"


def test_two_constraints_name_both_fields() -> None:
    with pytest.raises(RequestError, match="response_format and regex both say"):
        spec_of(regex="a", response_format={"type": "json_object"})
    with pytest.raises(RequestError, match=r"structured_outputs.json and structured_outputs.regex both"):
        spec_of(structured_outputs={"json": {}, "regex": "a"})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": ["text"]}}, "response_format.type"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "schema": 5}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.name",
        ),
        ({"response_format": named(SCHEMA, name="a b")}, "response_format.json_schema.name"),
        ({"response_format": named(SCHEMA, strict="yes")}, "response_format.json_schema.strict"),
        ({"response_format": named([])}, "response_format.json_schema.schema"),
        ({"response_format": named("{")}, "response_format.json_schema.schema"),
        ({"response_format": named(SCHEMA, extra=1)}, "response_format.json_schema.extra"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.structures"),
        ({"response_format": {"type": "regex"}}, "response_format.regex"),
        ({"json_schema": "[1]"}, "json_schema"),
        ({"guided_json": False}, "guided_json"),
        ({"regex": ""}, "regex"),
        ({"ebnf": " "}, "ebnf"),
        ({"choice": []}, "choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structural_tag": {"type": "x", "format": {}}}, "structural_tag.type"),
        ({"structural_tag": {"format": 1}}, "structural_tag.format"),
        ({"structural_tag": {"structures": [{}], "triggers": ["x"]}}, "structural_tag.structures[0].begin"),
        ({"structural_tag": {**OLD_TAG, "triggers": []}}, "structural_tag.triggers"),
        ({"structural_tag": {**OLD_TAG, "format": {}}}, "structural_tag"),
    ],
)
def test_a_wrong_form_names_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        spec_of(**fields)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"json_schema": SCHEMA}, {"regex": "a"}, {"ebnf": "a"}, {"structural_tag": NEW_TAG}]
)
def test_a_spec_in_a_tag_keeps_its_content(fields: dict[str, Any]) -> None:
    spec = spec_of(**fields)
    assert spec is not None
    [value] = fields.values()
    assert value in format_of(spec).values() or format_of(spec) == NEW_TAG["format"]


PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "{}"}]},
    "/v1/completions": {"prompt": "{}"},
}


@pytest.mark.parametrize("path", PROMPTS)
def test_both_routes_send_the_grammar(server: Served, path: str) -> None:
    body = PROMPTS[path]
    for fields in ({"response_format": named(SCHEMA)}, {"guided_json": SCHEMA}):
        assert server.post(path, {**body, **fields}).status_code == 200
        request = server.engine.requests[-1]
        assert json.loads(request.grammar.source) == SCHEMA


class Person(pydantic.BaseModel):
    name: str
    age: int


def test_the_sdk_parses_its_own_schema(server: Served) -> None:
    text = '{"name": "Ada", "age": 36}'
    with server.openai() as sdk:
        reply = sdk.chat.completions.parse(
            model="org/echo", messages=[{"role": "user", "content": text}], response_format=Person
        )
    assert reply.choices[0].message.parsed == Person(name="Ada", age=36)
    sent: Any = type_to_response_format_param(Person)
    assert json.loads(server.engine.requests[-1].grammar.source) == sent["json_schema"]["schema"]


def test_the_native_route_accepts_only_sglang_s_names(server: Served) -> None:
    native = {"json_schema": "{}", "regex": "a", "ebnf": 'root ::= "a"', "structural_tag": NEW_TAG}
    for name, value in native.items():
        reply = server.post("/generate", {"text": "a", "sampling_params": {name: value}})
        assert reply.status_code == 200
        assert server.engine.requests[-1].grammar == spec_of(**{name: value})
    for name in set(GRAMMAR_FIELDS) - native.keys():
        reply = server.post("/generate", {"text": "a", "sampling_params": {name: {"type": "x"}}})
        assert reply.json()["error"]["param"] == f"sampling_params.{name}"
    both = server.post("/generate", {"text": "a", "sampling_params": {"regex": "a", "ebnf": "a"}})
    assert "sampling_params.regex and sampling_params.ebnf both" in both.json()["error"]["message"]


class NoGrammar:
    """A grammar checker that finds something wrong with all of them."""

    async def check(self, spec: GrammarSpec, param: str, tenant: str = "") -> GrammarSpec:
        raise RequestError(f"{param} is too much", param=param)

    async def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ],
)
def test_unsupported_constraints_are_refused_before_running(
    tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path, MARKERS), grammar_checker=NoGrammar()) as served:
        for path, prompt in PROMPTS.items():
            reply = served.post(path, {**prompt, **fields})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        assert served.engine.requests == []


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (named(SCHEMA), "response_format.json_schema.schema"),
        ({"type": "json_object"}, "response_format"),
        ({"type": "json_object", "schema": SCHEMA}, "response_format.schema"),
        ({"type": "regex", "pattern": "a"}, "response_format.pattern"),
    ],
)
def test_compile_errors_will_name_the_full_path(given: dict[str, Any], param: str) -> None:
    found = structure_of(GenerationRequest(response_format=given))
    assert found is not None
    assert found.param == param
