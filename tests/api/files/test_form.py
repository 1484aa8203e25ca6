"""A form with a file gives the same however it arrives, and says what is wrong with it."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmfw.core.base.errors import RequestError, TooLargeError

from .forms import BOUNDARY, PURPOSE, cut, form, part, read, upload_form

FILE = part("file", b"x", "a")
PURPOSE_PART = part(*PURPOSE)


@given(
    content=st.binary(min_size=1, max_size=300),
    order=st.permutations(range(4)),
    places=st.lists(st.integers(0, 2000)),
)
def test_form_parsing_ignores_chunking_and_order(content, order, places):
    parts = [
        part("file", content, "a b.jsonl", "Content-Type: text/plain"),
        part("purpose", b"user_data"),
        part("expires_after[anchor]", b"created_at"),
        part("expires_after[seconds]", b"3600"),
    ]
    found, read_form = read(cut(form(*(parts[index] for index in order)), places))
    assert (found, read_form.filename) == (content, "a b.jsonl")
    assert read_form.values == {
        "purpose": "user_data",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": "3600",
    }


BORDERS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"--",
    b"\r\n--",
    f"\r\n--{BOUNDARY[:-1]}".encode(),
    BOUNDARY.encode(),
    b"x",
]


@given(st.lists(st.sampled_from(BORDERS), min_size=1).map(b"".join), st.lists(st.integers(0, 2000)))
def test_boundary_like_bytes_stay_in_the_file(content, places):
    assume(f"\r\n--{BOUNDARY}".encode() not in content)
    assert read(cut(upload_form(content), places))[0] == content


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([FILE, PURPOSE_PART, b"--", *BORDERS]))),
    st.lists(st.integers(0, 500)),
)
def test_any_bytes_are_a_form_or_refused(pieces, places):
    with contextlib.suppress(RequestError):
        assert read(cut(b"".join(pieces), places))[1].filename == "a"


@given(st.text(st.characters(codec="utf-8", exclude_characters="%"), min_size=1, max_size=100))
@settings(max_examples=300)
def test_names_sent_by_httpx_are_read_unchanged(filename):
    request = httpx.Request("POST", "http://x", files={"file": (filename, b"x")})
    boundary = request.headers["content-type"].partition("boundary=")[2]
    assert read([request.read()], boundary)[1].filename == filename


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (form(PURPOSE_PART), "file", "file is missing"),
        (form(part("file", b"", "a"), PURPOSE_PART), "file", "file is empty"),
        (form(part("file", b"x"), PURPOSE_PART), "file", "no filename"),
        (form(part("file", b"x", ""), PURPOSE_PART), "file", "no filename"),
        (form(FILE, FILE), "file", "twice"),
        (form(PURPOSE_PART, PURPOSE_PART), "purpose", "twice"),
        (form(part("purpose", b"fun")), "purpose", "'fun'; it must be one of batch, user_data"),
        (form(part("purpose", b"batch_output")), "purpose", "that the server makes"),
        (form(part("purpose", b"\xff")), "purpose", "not a text in UTF-8"),
        (form(part("purpose", b"x" * 5000)), "purpose", "more than 4096 bytes"),
        (form(part("expires_after[anchor]", b"now")), "expires_after[anchor]", "must be 'created_at'"),
        (form(part("expires_after[seconds]", b"3599")), "expires_after[seconds]", "from 3600"),
        (form(part("expires_after[seconds]", b"2592001")), "expires_after[seconds]", "2592000"),
        (form(part("expires_after[seconds]", b"1e4")), "expires_after[seconds]", "'1e4'"),
        (
            form(part("expires_after", b"{}")),
            "expires_after",
            "fields are file, purpose, expires_after[anchor]",
        ),
        (form(part("", b"x")), None, "field ''"),
        (form(part("file", b"eA==", "a", "Content-Transfer-Encoding: base64")), "file", "base64"),
        (form(part("file", b"x", "a", "X: " + "x" * 9000)), None, "more than 4224 bytes"),
        (form(part("file", b"x", "a", *["X: y"] * 20)), None, "or too many"),
        (f'--{BOUNDARY}\r\nX: form-data; name="file"\r\n\r\nx'.encode(), None, "Content-Disposition"),
        (f"--{BOUNDARY}\r\nContent-Disposition: attachment\r\n\r\nx".encode(), None, "Wrong type"),
        (upload_form()[:-6], None, "Unexpected end"),
        (PURPOSE_PART + FILE, None, "Unexpected end"),
        (upload_form().replace(BOUNDARY.encode(), b"other"), None, "Unexpected end"),
        (b"", None, "Unexpected end"),
        (b"{}", None, "Unexpected end"),
    ],
)
@pytest.mark.parametrize("size", [1, 10**6])
def test_a_wrong_form_names_the_reason(body, param, words, size):
    with pytest.raises(RequestError) as raised:
        read(cut(body, range(0, len(body), size)))
    assert raised.value.param == param
    assert words in str(raised.value)


def test_preamble_and_epilogue_are_ignored():
    body = b"preamble\r\n" + upload_form(b"x") + b"epilogue"
    assert read(cut(body, range(len(body))))[0] == b"x"


def test_a_file_past_the_limit_is_refused_early(monkeypatch):
    monkeypatch.setattr("llmfw.api.files.service.MAX_FILE_BYTES", 100)
    assert len(read([upload_form(b"x" * 100)])[0]) == 100
    with pytest.raises(TooLargeError, match="at most 100 bytes"):
        read([upload_form(b"x" * 200)[:-30]])


def test_endless_text_around_a_form_is_refused():
    with pytest.raises(TooLargeError):
        read([upload_form(b"x"), *[bytes(2**24)] * 33])
