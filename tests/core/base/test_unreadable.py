"""What is wrong with a text of JSON or TOML is said without advice about Python."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.unreadable import unreadable


@pytest.mark.parametrize(("load", "text"), [(json.loads, "9" * 5000), (tomllib.loads, "a = " + "9" * 5000)])
def test_long_numbers_are_named(load: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the kind is all that json promises
        load(text)
    assert unreadable(caught.value) == "it has a whole number of more than 4300 digits"


def test_other_errors_keep_their_text() -> None:
    assert unreadable(ValueError("Expecting value")) == "Expecting value"
    assert unreadable(RecursionError("C stack")) == "it is nested too deeply"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a = 1".encode("utf-16"), "it is UTF-16; save it as UTF-8"),
        (b"a = \xe9", "it is not UTF-8 at byte 4; save it as UTF-8"),
    ],
)
def test_other_encodings_are_named(raw: bytes, expected: str) -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        raw.decode()
    assert unreadable(caught.value) == expected


def test_every_reader_of_user_text_uses_it() -> None:
    """A reader that shows `error` itself would show Python's advice."""
    houses = Path(__file__).parents[3]
    for file in (file for house in ("api", "core", "plugins") for file in (houses / house).rglob("*.py")):
        text = file.read_text()
        if "json.loads(" in text or "json.load(" in text or "tomllib.loads(" in text:
            for shown in ("JSON: {error}", "TOML file: {error}", "cannot be read: {error}"):
                lines = [line for line in text.splitlines() if shown in line]
                assert len(lines) <= (file.name == "small_files.py"), (file, lines)  # its one is an OSError
