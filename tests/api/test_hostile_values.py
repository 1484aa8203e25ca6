"""Texts that are no Unicode and numbers beyond all bounds are refused wherever they are in a body, or mean what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving
from ..length import of_length
from .test_hostile_bodies import BODIES, answered, changed, places

HALVES = ["\ud800", "a\udc00b", "\udfff\ud800"]
NUMBERS = [
    "1e308",
    "-1e308",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-0",
    "-0.0",
    "1e-400",
    "9" * 400,
    "-" + "9" * 5000,
]
PLACE = "the place of a number"


def texts(body: Any) -> Iterator[tuple[Any, ...]]:
    yield from (path for path in places(body) if path and isinstance(_at(body, path), str))


def numbers(body: Any) -> Iterator[tuple[Any, ...]]:
    yield from (path for path in places(body) if path and type(_at(body, path)) in (int, float))


def names(body: Any) -> Iterator[tuple[Any, ...]]:
    yield from (path for path in places(body) if path and isinstance(path[-1], str))


def sample(paths: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return every third place in `make test`: many bodies have the same fields."""
    return list(paths)[:: of_length(3, 1)]


def _at(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def _renamed(body: Any, path: tuple[Any, ...], name: str) -> Any:
    """Return a copy of a body in which a member has another name."""
    found = dict(_at(body, path[:-1]))
    found[name] = found.pop(path[-1])
    return changed(body, path[:-1], found)


def _send(http: httpx.Client, path: str, raw: str) -> bool:
    return answered(http.post(path, content=raw, headers={"content-type": "application/json"}))


@pytest.fixture(scope="module")
def http(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: value if isinstance(value, str) else "")
def test_unpaired_surrogates_are_refused(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    for i, place in enumerate(sample(texts(body))):
        assert _send(http, path, json.dumps(changed(body, place, HALVES[i % len(HALVES)])))
    for place in sample(names(body)):
        assert _send(http, path, json.dumps(_renamed(body, place, "\ud800")))


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: value if isinstance(value, str) else "")
def test_hostile_numbers_are_answered(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    for place in sample(numbers(body)):
        for number in NUMBERS:
            _send(http, path, json.dumps(changed(body, place, PLACE)).replace(f'"{PLACE}"', number))


BOUNDARY = b"--b\r\n"
PURPOSE = BOUNDARY + b'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'


@pytest.mark.parametrize(
    "name",
    [
        b'filename="\xed\xa0\x80.jsonl"',
        b"filename*=utf-8''%ED%A0%80.jsonl",
        b'filename="\xff.jsonl"',
        b"filename*=utf-8''%FF",
    ],
)
def test_non_unicode_file_names_are_answered(http: httpx.Client, name: bytes) -> None:
    part = BOUNDARY + b'Content-Disposition: form-data; name="file"; ' + name + b"\r\n\r\n{}\r\n--b--\r\n"
    reply = http.post(
        "/v1/files", content=PURPOSE + part, headers={"content-type": "multipart/form-data; boundary=b"}
    )
    if not answered(reply):
        reply.json()["filename"].encode()
        assert http.get(f"/v1/files/{reply.json()['id']}").json() == reply.json()


@pytest.mark.parametrize("half", ["%ED%A0%80", "%FF", "%ud800", "9" * 5000])
@pytest.mark.parametrize(
    "url",
    [
        "/v1/files?after={}",
        "/v1/files?limit={}",
        "/v1/files?purpose={}",
        "/v1/files/{}",
        "/v1/batches?after={}",
        "/v1/batches?limit={}",
        "/v1/batches/{}",
        "/v1/responses/{}",
        "/v1/models/{}",
        "/v1/responses/{}/input_items",
    ],
)
def test_non_unicode_paths_are_answered(http: httpx.Client, url: str, half: str) -> None:
    answered(http.get(url.format(half)))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "\\ud800"}',
        '{"type": "object", "properties": {"\\udfff": {}}}',
        '{"minimum": 1e400}',
        '{"const": NaN}',
    ],
)
@pytest.mark.parametrize("field", ["json_schema", "guided_json", "structural_tag"])
def test_invalid_json_in_text_names_the_field(http: httpx.Client, field: str, text: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, field: text}
    reply = http.post("/v1/chat/completions", json=body)
    assert answered(reply)
    assert reply.json()["error"]["param"].startswith(field)


@pytest.mark.parametrize(
    "arguments", ['{"x": "\\ud800"}', '{"x": 1e400}', "[" * 50_000, '{"x": ' + "9" * 5000 + "}"]
)
def test_call_arguments_stay_unchanged(tmp_path_factory: pytest.TempPathFactory, arguments: str) -> None:
    template = "{% for m in messages if m.tool_calls %}{{ m.tool_calls | tojson | length }}{% endfor %}"
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("m"), MARKERS), template) as served:
        reply = served.post("/tokenize", {"messages": messages})
        assert reply.status_code == 200, reply.text
