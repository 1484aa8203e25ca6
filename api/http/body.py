"""Decodes request bodies to Structs. Errors name the field; ignored fields are listed.

Structs declare which fields they refuse or ignore (`schemas.common`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from llmfw.api.schemas.common import Body, GenerationRequest, Inert, StreamOptions
from llmfw.api.schemas.native import GenerateRequest
from llmfw.api.schemas.refusals import REFUSALS
from llmfw.api.schemas.request_fields import fields_in
from llmfw.api.server.json_scan import CODE
from llmfw.core.base.errors import RequestError

IGNORED_HEADER = "llmfw-ignored-params"
MAX_IGNORED_NAMES = 50
MAX_SHOWN_BYTES = 2**18
"""Largest body that is decoded a second time, to show the wrong value in an error."""

MAX_FIELDS = 1000
"""Maximum number of members of a body, and of each nested object that is decoded to a `Body`."""

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
CheckedT = TypeVar("CheckedT", bound=Body)
GenerationT = TypeVar("GenerationT", bound=GenerationRequest)
NestedT = TypeVar("NestedT", bound=Body)

_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_AT_PATH = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_SURROGATES = re.compile(
    rb"\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escapes in JSON: of another character, of a whole surrogate pair, or of half of one."""
_IN_KEYS = re.compile(r" - at `key` in `\$\.?(?P<path>.*)`$")


def decode_body(raw: bytes, kind: type[BodyT]) -> BodyT:
    """Decode a body to a Struct.

    Raises:
        RequestError: the body is not JSON, or a value has the wrong type; names the field and shows its
            value.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        body = _decode(raw) if len(raw) <= MAX_SHOWN_BYTES else None  # to show the wrong value
        raise _wrong_value(body, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _not_json(error, raw) from error


def decode_checked(raw: bytes, kind: type[CheckedT]) -> tuple[CheckedT, list[str]]:
    """Decode a body; return it with the names of fields that have no effect.

    Raises:
        RequestError: as in `decode_body`; or a field is refused.
    """
    body = decode_body(raw, kind)
    return body, check_fields(body, fields_of(raw))


def decode_generation(raw: bytes, kind: type[GenerationT]) -> tuple[GenerationT, list[str]]:
    """Decode a generation request; return it with the names of fields that have no effect.

    Raises:
        RequestError: as in `decode_body`; or a field is refused, or there are stream options without
            `stream`.
    """
    body = decode_body(raw, kind)
    given = fields_of(raw)
    ignored = check_fields(body, given)
    if not given.keys().isdisjoint(Inert.__struct_fields__):
        decode_body(raw, Inert)
    return body, sorted(ignored + check_stream_options(body.stream_options, body.stream, given))


def check_stream_options(
    options: StreamOptions | None, stream: bool | None, given: dict[str, msgspec.Raw]
) -> list[str]:
    """Check `stream_options`; return the names of its fields that have no effect.

    Args:
        given: fields of the request body, as raw JSON.

    Raises:
        RequestError: there are options, but `stream` is not true; or a field is refused.
    """
    if options is None:
        return []
    if not stream:
        raise RequestError(
            "stream_options needs stream to be true; set it, or leave stream_options out",
            param="stream_options",
        )
    ignored = check_fields(options, fields_of(given["stream_options"]), "stream_options.")
    return [*ignored, "stream_options.include_obfuscation"] if options.include_obfuscation else ignored


def decode_native(
    raw: bytes, kind: type[GenerateRequest] = GenerateRequest
) -> tuple[GenerateRequest, list[str]]:
    """Decode the body of SGLang's POST /generate to a `GenerateRequest`, as `decode_nested` does.

    Fields that only change the form of log probabilities have no effect unless these are requested.
    """
    body, ignored = decode_nested(raw, kind, ("sampling_params",))
    if not body.return_logprob:
        start = -1 if body.logprob_start_len is None else body.logprob_start_len
        ignored += ["logprob_start_len"] if start >= 0 else []
        ignored += ["return_text_in_logprobs"] if body.return_text_in_logprobs else []
    return body, sorted(ignored)


def decode_nested(raw: bytes, kind: type[NestedT], inner: Sequence[str]) -> tuple[NestedT, list[str]]:
    """Decode a body that contains nested bodies.

    Args:
        inner: names of the fields that contain a Body or a list of them.

    Returns:
        The body, and the names of all fields without effect, including those of nested bodies.

    Raises:
        RequestError: as in `decode_body`; or a field is refused.
    """
    body = decode_body(raw, kind)
    given = fields_of(raw)
    ignored = check_fields(body, given)
    of_plugins = [field.name for field in fields_in(body)]
    for name in inner:
        part = getattr(body, name)
        if isinstance(part, list):
            for i, (each, fields) in enumerate(zip(part, _list_decoder.decode(given[name]), strict=True)):
                ignored += check_fields(each, fields_of(fields), f"{name}[{i}].", of_plugins)
        elif part is not None:
            ignored += check_fields(part, fields_of(given[name]), f"{name}.", of_plugins)
    return body, ignored


def check_fields(
    body: Body, given: dict[str, msgspec.Raw], prefix: str = "", outside: Collection[str] = ()
) -> list[str]:
    """Check a body's unknown fields; return the names of the fields without effect.

    Args:
        given: all fields of the body, as raw JSON.
        prefix: prefix of the names, for a body inside another.
        outside: names of request fields that the other body has.

    Raises:
        RequestError: the body's class refuses a field (`Body.refused`).
    """
    ignored = []
    for name in given.keys() - set(body.__struct_fields__):
        value = _decode(given[name])
        refusal = body.refused.get(name)
        if refusal is not None and not refusal.passes(value):
            if refusal.tunes and not any(_is_used(given, field) for field in refusal.tunes):
                ignored.append(prefix + name)
                continue
            advice = refusal.advice(body.__struct_fields__)
            if name in outside:
                advice = f"put it next to {prefix.partition('.')[0].partition('[')[0]}"
            raise RequestError(
                f"{prefix}{name} is {_shown(value)}, which is not supported: {advice}",
                param=prefix + name,
                code="unsupported_parameter",
            )
        if refusal is None and value is not None:
            ignored.append(prefix + name)
    return sorted(ignored)


def _is_used(given: Mapping[str, msgspec.Raw], field: str) -> bool:
    """Return whether a body contains a field, and the field's value has an effect."""
    if field not in given:
        return False
    value = _decode(given[field])
    refusal = REFUSALS.get(field)
    return value is not None and (refusal is None or not refusal.passes(value))


def ignored_header(names: list[str]) -> dict[str, str]:
    """Return the header that reports ignored fields; {} if there are none.

    Odd characters are percent-encoded.
    """
    if not names:
        return {}
    shown = [quote(name[:100], safe="[]. ") for name in names[:MAX_IGNORED_NAMES]]
    if len(names) > MAX_IGNORED_NAMES:
        shown.append("...")
    return {IGNORED_HEADER: ", ".join(shown)}


def report_ignored(names: list[str], strict: bool) -> dict[str, str]:
    """Return the header that reports ignored fields; if `strict`, raise RequestError for them instead."""
    if strict and names:
        shown = ", ".join(name[:100] for name in names[:MAX_IGNORED_NAMES])
        raise RequestError(
            f"{shown}: this server does nothing with it, and was started with --strict-params",
            param=names[0],
            code="unsupported_parameter",
        )
    return ignored_header(names)


def fields_of(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object.

    Raises:
        RequestError: the JSON is not an object, or has too many fields.
    """
    try:
        fields = _fields_decoder.decode(raw)
    except (ValueError, RecursionError) as error:  # decoding to a Struct does not check skipped values
        raise _not_json(error, raw) from error
    if len(fields) > MAX_FIELDS:
        raise RequestError(
            f"an object has {len(fields)} members; at most {MAX_FIELDS} are allowed", code=CODE
        )
    return fields


def _decode(raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise _not_json(error, raw) from error


def half_surrogates(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the place and the text of each escape in JSON that is half of a surrogate pair, such as \\ud800."""
    for found in _SURROGATES.finditer(raw):
        if found["half"]:
            yield found.start("half"), found["half"]


def _not_json(error: Exception, raw: bytes | msgspec.Raw) -> RequestError:
    if isinstance(error, UnicodeDecodeError):
        return RequestError(f"the request's body is not UTF-8: {_not_utf8(raw)}", code="invalid_json")
    if any(word in str(error) for word in ("surrogate", "truncated", "end of hex escape")):
        found = next(half_surrogates(bytes(raw)), None)
        if found is not None:
            place, half = found
            return RequestError(
                f"the request's body has {half.decode()} at byte {place}, half of a surrogate pair: no character; "
                "send the character itself, or both halves",
                code="invalid_json",
            )
    return RequestError(f"the request's body is not valid JSON: {error}", code="invalid_json")


def _not_utf8(raw: bytes | msgspec.Raw) -> str:
    """Return which byte is not UTF-8, and its place in the body, or in the separately decoded value."""
    data = bytes(raw)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        of = "" if isinstance(raw, bytes) else f" of the value that starts with {data[:20]!r}"
        return f"0x{data[error.start]:02x} at byte {error.start}{of} ({error.reason}); send UTF-8"
    raise AssertionError("only bytes that are not UTF-8 are asked about")


def _wrong_value(body: Any, message: str) -> RequestError:
    """Convert msgspec's message, which ends with a path, to an error that names the field and its value."""
    found = _AT_PATH.search(message) or _IN_KEYS.search(message)
    if found is None:
        missing = re.search(r"missing required field `(\w+)`", message)
        if missing:
            return RequestError(f"{missing[1]} is missing; it is required", param=missing[1])
        return RequestError(f"the request's body is not what it should be: {message}")
    path, problem = found["path"], message[: found.start()]
    if missing := re.search(r"missing required field `(\w+)`", problem):
        path = f"{path}.{missing[1]}"
        return RequestError(f"{path} is missing; it is required", param=path)
    value = "wrong" if body is None else _value_at(body, path)
    expected = problem[:1].lower() + problem[1:]
    return RequestError(f"{path} is {value}: {expected}", param=path or None)


def _value_at(body: Any, path: str) -> str:
    for key in re.findall(r"[^.\[\]]+|\[\.\.\.\]", path):
        try:
            body = body[int(key)] if isinstance(body, list) else body[key]
        except (KeyError, IndexError, TypeError, ValueError):
            break
    return _shown(body)


def _shown(value: Any) -> str:
    """Return a value as JSON, short enough for a message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
