"""Structured output: converts the request fields that constrain an output to one GrammarSpec.

Reads OpenAI's `response_format` and the equivalent fields of vLLM and SGLang. The grammar backend decides
whether it can enforce a schema or a grammar; `tool_choice` handles tool calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from llmfw.api.schemas.common import GRAMMAR_FIELDS, Body
from llmfw.api.schemas.refusals import REFUSALS
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec

Format = dict[str, Any]
"""The `format` object of a structural tag, as decoded JSON."""

ANY_OBJECT = {"type": "object"}

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Structure(msgspec.Struct, frozen=True):
    """A constraint on an output.

    Attributes:
        param: request field that set it, for errors.
        spec: grammar for the engine.
    """

    param: str
    spec: GrammarSpec


def structure_of(body: Body, prefix: str = "") -> Structure | None:
    """Return a request's constraint on the output; None if there is none.

    Args:
        body: request body with some of the fields in GRAMMAR_FIELDS.
        prefix: prefix of the fields' names in errors, for a body inside another.

    Raises:
        RequestError: two fields set different constraints, or a field is malformed; names its path.
    """
    found = list(_structures(body, prefix))
    for other in found[1:]:
        if other.spec != found[0].spec:
            raise RequestError(
                f"{found[0].param} and {other.param} both say what the output has to be, and differ; give one of them",
                param=other.param,
            )
    return found[0] if found else None


def format_of(spec: GrammarSpec) -> Format:
    """Convert a grammar to a `format` that can be used inside a structural tag."""
    if spec.kind == "json_schema":
        return {"type": "json_schema", "json_schema": json.loads(spec.source)}
    if spec.kind == "regex":
        return {"type": "regex", "pattern": spec.source}
    if spec.kind == "ebnf":
        return {"type": "grammar", "grammar": spec.source}
    form: Format = json.loads(spec.source)["format"]
    return form


def tag_spec(form: Format) -> GrammarSpec:
    """Return a grammar of kind "structural_tag" with this format."""
    return GrammarSpec("structural_tag", _text({"type": "structural_tag", "format": form}))


def _structures(body: Body, prefix: str) -> Iterator[Structure]:
    given = {name: getattr(body, name, None) for name in GRAMMAR_FIELDS}
    for name, value in given.items():
        param = prefix + name
        if value is None or REFUSALS[name].passes(value):
            continue
        if name == "response_format":
            yield from _response_format(value, param)
        elif name == "structured_outputs":
            yield from _structured_outputs(value, param)
        else:
            yield Structure(param, _FIELDS[name](value, param))


def _response_format(given: Mapping[str, Any], param: str) -> Iterator[Structure]:
    kind = given.get("type")
    keys = _RESPONSE_FORMATS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        _wrong(f"{param}.type", kind, f"one of {', '.join(_RESPONSE_FORMATS)}")
    if kind == "json_object" and "value" in given:  # as in TGI
        raise RequestError(
            f'{param}.value is not supported; send the schema as {{"type": "json_object", "schema": …}}',
            param=f"{param}.value",
            code="unsupported_parameter",
        )
    _check_keys(given, ("type", *keys), param)
    if kind == "text":
        return
    if kind == "structural_tag":
        yield Structure(param, _structural_tag(given, param))
    elif kind == "regex":
        key = "pattern" if "pattern" in given else "regex"
        where = f"{param}.{key}"
        yield Structure(where, _regex(given.get(key), where))
    elif kind == "json_object":
        where = f"{param}.schema"
        yield Structure(
            where if "schema" in given else param, _json_schema(given.get("schema", ANY_OBJECT), where)
        )
    else:
        where = f"{param}.json_schema"
        yield Structure(f"{where}.schema", _named_schema(given.get("json_schema"), where))


_RESPONSE_FORMATS = {
    "text": (),
    "json_object": ("schema",),
    "json_schema": ("json_schema",),
    "structural_tag": ("format", "structures", "triggers"),
    "regex": ("pattern", "regex"),
}


def _named_schema(given: Any, param: str) -> GrammarSpec:
    """Read a schema in OpenAI's form. The schema is always enforced, whatever `strict` is."""
    if not isinstance(given, dict):
        _wrong(param, given, "an object with name and schema")
    _check_keys(given, ("name", "description", "schema", "strict"), param)
    name, strict, description = given.get("name"), given.get("strict"), given.get("description")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        _wrong(f"{param}.name", name, "1 to 64 letters, digits, underscores and dashes")
    if not isinstance(strict, bool | None):
        _wrong(f"{param}.strict", strict, "true or false")
    if not isinstance(description, str | None):
        _wrong(f"{param}.description", description, "a string")
    schema = given.get("schema")
    return _json_schema(ANY_OBJECT if schema is None else schema, f"{param}.schema")


def _structured_outputs(given: Mapping[str, Any], param: str) -> Iterator[Structure]:
    """Read vLLM's `structured_outputs`: an object with one key, such as `json` or `regex`."""
    _check_keys(given, _STRUCTURED_OUTPUTS, param)
    asked = {key: value for key, value in given.items() if value is not None and value is not False}
    if not asked:
        _wrong(param, given, f"an object with one of {', '.join(_STRUCTURED_OUTPUTS)}")
    for key, value in asked.items():
        yield Structure(f"{param}.{key}", _STRUCTURED_OUTPUTS[key](value, f"{param}.{key}"))


def _json_schema(value: Any, param: str) -> GrammarSpec:
    """Read a schema, or its JSON text."""
    schema = _parsed(value, param) if isinstance(value, str) else value
    if not (isinstance(schema, dict) or schema is True):
        _wrong(param, value, "a JSON schema: an object, or true")
    return GrammarSpec("json_schema", _text(schema))


def _json_object(value: Any, param: str) -> GrammarSpec:
    if value is not True:
        _wrong(param, value, "true or false")
    return _json_schema(ANY_OBJECT, param)


def _regex(value: Any, param: str) -> GrammarSpec:
    if not (isinstance(value, str) and value):
        _wrong(param, value, "a regular expression")
    return GrammarSpec("regex", value)


def _ebnf(value: Any, param: str) -> GrammarSpec:
    if not (isinstance(value, str) and value.strip()):
        _wrong(param, value, "a grammar")
    return GrammarSpec("ebnf", value)


def _choice(value: Any, param: str) -> GrammarSpec:
    if not (isinstance(value, list) and value):
        _wrong(param, value, "a list of strings that is not empty")
    for i, item in enumerate(value):
        if not (isinstance(item, str) and item):
            _wrong(f"{param}[{i}]", item, "a string that is not empty")
    texts: list[Format] = [{"type": "const_string", "value": text} for text in value]
    return tag_spec({"type": "or", "elements": texts} if len(texts) > 1 else texts[0])


def _structural_tag(value: Any, param: str) -> GrammarSpec:
    """Read a structural tag: with a `format`, or in the older form with `structures` and `triggers`."""
    tag = _parsed(value, param) if isinstance(value, str) else value
    if not isinstance(tag, dict):
        _wrong(param, value, "a structural tag: an object with format")
    _check_keys(tag, ("type", *_RESPONSE_FORMATS["structural_tag"]), param)
    if tag.get("type", "structural_tag") != "structural_tag":
        _wrong(f"{param}.type", tag["type"], "'structural_tag'")
    if "format" not in tag:
        return tag_spec(_triggered(tag, param))
    if "structures" in tag or "triggers" in tag:
        raise RequestError(f"{param} has format and structures or triggers; give format only", param=param)
    if not isinstance(tag["format"], dict):
        _wrong(f"{param}.format", tag["format"], "an object with type")
    return tag_spec(tag["format"])


def _triggered(tag: Mapping[str, Any], param: str) -> Format:
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not (isinstance(structures, list) and structures):
        _wrong(f"{param}.structures", structures, "a list of objects with begin, schema and end")
    if not (isinstance(triggers, list) and triggers and all(isinstance(text, str) for text in triggers)):
        _wrong(f"{param}.triggers", triggers, "a list of strings")
    tags = [_tag_of(item, f"{param}.structures[{i}]") for i, item in enumerate(structures)]
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _tag_of(given: Any, param: str) -> Format:
    if not isinstance(given, dict):
        _wrong(param, given, "an object with begin, schema and end")
    _check_keys(given, ("begin", "schema", "end"), param)
    for key in ("begin", "end"):
        if not isinstance(given.get(key), str):
            _wrong(f"{param}.{key}", given.get(key), "a string")
    content = format_of(_json_schema(given.get("schema", {}), f"{param}.schema"))
    return {"type": "tag", "begin": given["begin"], "content": content, "end": given["end"]}


_FIELDS: dict[str, Callable[[Any, str], GrammarSpec]] = {
    "json_schema": _json_schema,
    "regex": _regex,
    "ebnf": _ebnf,
    "choice": _choice,
    "structural_tag": _structural_tag,
    "guided_json": _json_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _ebnf,
    "grammar": _ebnf,
}

_STRUCTURED_OUTPUTS: dict[str, Callable[[Any, str], GrammarSpec]] = {
    "json": _json_schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _ebnf,
    "json_object": _json_object,
    "structural_tag": _structural_tag,
}


def _parsed(text: str, param: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{param} is not valid JSON ({error}): {text!r:.100}", param=param) from error


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _check_keys(given: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], param: str) -> None:
    """Raise RequestError for an unknown key. It might be a constraint, so it must not be ignored."""
    for key in given:
        if key not in known:
            raise RequestError(
                f"{param}.{key} is not supported; known: {', '.join(known)}",
                param=f"{param}.{key}",
                code="unsupported_parameter",
            )


def _wrong(param: str, value: Any, expected: str) -> NoReturn:
    raise RequestError(f"{param} is {value!r:.100}; it must be {expected}", param=param)
