"""File names in headers, as the many clients write them."""

from __future__ import annotations

from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.files.disposition import read_parameters, write_disposition


@pytest.mark.parametrize(
    ("header", "filename"),
    [
        (r'form-data; name="file"; filename="a.txt"', "a.txt"),
        (r"form-data; name=file; filename=a.txt", "a.txt"),
        (r'form-data; filename="a.txt"; name="file"', "a.txt"),
        (r'FORM-DATA; Name="file"; FileName="a.txt"', "a.txt"),
        (r'form-data; name="file"; filename="a\"b.txt"', 'a"b.txt'),
        (r'form-data; name="file"; filename="a%22b%0D%0A.txt"', 'a"b\r\n.txt'),
        (r'form-data; name="file"; filename="100%.txt"', "100%.txt"),
        (r'form-data; name="file"; filename="%41.txt"', "%41.txt"),
        (r'form-data; name="file"; filename="C:\dir\a.txt"', r"C:\dir\a.txt"),
        (r'form-data; name="file"; filename="\\\\host\\a.txt"', r"\\host\a.txt"),
        (r'form-data; name="file"; filename="ends\"', "ends\\"),
        (r'form-data; name="file"; filename="../../etc/passwd"', "../../etc/passwd"),
        (r'form-data; name="file"; filename="a; name=b"', "a; name=b"),
        (r'form-data; name="file"; filename="日本 🎉.txt"', "日本 🎉.txt"),
        ('form-data; name="file"; filename="x"; filename*=UTF-8\'\'%e2%82%ac%20rates', "€ rates"),
        ("form-data; name=\"file\"; filename*=utf-8'en'%22", '"'),
        ('form-data; name="file"; filename="x"; filename*=UTF-8\'\'%ff', "x"),
        ('form-data; name="file"; filename="x"; filename*=koi8-r\'\'a', "x"),
        ('form-data; name="file"; filename="x"; filename*=nonsense', "x"),
    ],
)
def test_file_names_are_read_in_every_notation(header, filename):
    assert read_parameters(header) == {"name": "file", "filename": filename}


@given(st.text())
def test_any_header_is_read(header):
    assert read_parameters(header).keys() >= set()


@given(st.text(st.characters(codec="utf-8")))
def test_the_reply_encodes_the_name_reversibly(filename):
    header = write_disposition(filename)
    assert header.isascii()
    assert header.isprintable()
    message = Message()
    message["content-disposition"] = header
    assert read_parameters(header)["filename"] == filename
    assert message.get_content_disposition() == "attachment"


def test_unpaired_surrogates_in_names_can_be_sent():
    assert write_disposition("\ud800").isascii()
