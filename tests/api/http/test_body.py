"""Whatever bytes come, a body is decoded or refused, and nothing in it goes unnoticed."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmfw.api.http.body import decode_body, decode_generation, decode_native, ignored_header
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.completions import CompletionRequest
from llmfw.core.base.errors import RequestError

MESSAGES = b'{"messages": [], "name": %b}'
names = st.sampled_from([*ChatRequest.__struct_fields__, "user", "logprobs", "response_format", "new"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw of a text reads Unicode's tables
@given(st.dictionaries(names, values), st.integers(0, 500), st.binary(max_size=2))
def test_any_bytes_are_decoded_or_refused(fields: dict[str, object], at: int, noise: bytes) -> None:
    raw = json.dumps(fields).encode()
    for body in (raw, raw[:at] + noise + raw[at + 1 :]):
        for decode in (lambda raw: decode_generation(raw, ChatRequest), decode_native):
            with suppress(RequestError):
                decode(body)


@given(st.dictionaries(names, st.none() | st.booleans() | st.text(max_size=3)))
def test_every_field_is_known_or_refused_or_reported(fields: dict[str, object]) -> None:
    raw = json.dumps({**fields, "messages": []}).encode()
    with suppress(RequestError):
        body, ignored = decode_generation(raw, ChatRequest)
        unknown = fields.keys() - set(body.__struct_fields__) - body.refused.keys()
        assert ignored == sorted(name for name in unknown if fields[name] is not None)


@pytest.mark.parametrize("value", [b'"\xff"', b'"\\ud800"', b"1" * 5000, b"[" * 5000])
def test_invalid_ignored_values_are_refused_or_skipped(value: bytes) -> None:
    with suppress(RequestError):
        _, ignored = decode_generation(MESSAGES % value, ChatRequest)
        assert ignored == ["name"]


def test_invalid_utf8_is_named_with_its_place() -> None:
    """In the body; for a value that the route does not read, in the value."""
    for at in (0, 7, 100_000):
        raw = b'{"messages": "' + b"a" * at + b'\xff"}'
        with pytest.raises(RequestError, match=f"not UTF-8: 0xff at byte {raw.index(255)} ") as caught:
            decode_generation(raw, ChatRequest)
        assert caught.value.code == "invalid_json"
    with pytest.raises(RequestError, match="0xff at byte 2 of the value that starts with"):
        decode_generation(b'{"messages": [], "new": "a\xff"}', ChatRequest)


def test_a_wrong_value_has_its_path_as_param() -> None:
    raw = msgspec.json.encode({"messages": [], "stop": ["a", 5]})
    with pytest.raises(RequestError, match=r"stop\[1\] is 5") as caught:
        decode_generation(raw, ChatRequest)
    assert caught.value.param == "stop[1]"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=60))
def test_the_ignored_header_is_valid_ascii(names: list[str]) -> None:
    [value] = ignored_header(names).values()
    assert value.isascii()
    assert value.isprintable()


def test_without_ignored_fields_the_header_is_absent() -> None:
    assert ignored_header([]) == {}


@pytest.mark.parametrize(
    ("raw", "half"),
    [
        (rb'{"prompt": "\ud800"}', r"\ud800 at byte 12"),
        (rb'{"prompt": "\udc00x"}', r"\udc00 at byte 12"),
        (rb'{"prompt": "\ud83d\ude00 \uD800\u0041"}', r"\uD800 at byte 25"),
        (rb'{"prompt": "\\ud800 \uDBFFx"}', r"\uDBFF at byte 20"),
        (rb'{"prompt": "a", "\ud800": 1}', r"\ud800 at byte 17"),
        (rb'{"prompt": "a", "metadata": {"\ud800": "x"}}', r"\ud800 at byte 30"),
    ],
)
def test_an_unpaired_surrogate_is_named(raw: bytes, half: str) -> None:
    with pytest.raises(RequestError, match="half of a surrogate pair") as info:
        decode_body(raw, CompletionRequest)
    assert half in str(info.value)
