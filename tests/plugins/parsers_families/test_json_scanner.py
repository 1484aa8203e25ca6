"""Where JSON text ends, or stops being JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.testing.parsing import cut
from llmfw.plugins.parsers_families.json_scanner import JsonScanner

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)
objects = st.dictionaries(st.text(), values, max_size=4) | st.lists(values, max_size=4)
dumped = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent),
    objects,
    st.booleans(),
    st.none() | st.just(2),
)
EDITS = '{}[]",:\\ \n0123456789-+.eEtrufalsnxN'


def scan(*texts: str) -> tuple[int, JsonScanner]:
    """Return how much was accepted of texts fed one after another, and the scanner."""
    scanner, accepted = JsonScanner(), 0
    for text in texts:
        accepted += scanner.feed(text)
    return accepted, scanner


def is_json(text: str) -> bool:
    """Return whether the reference takes a text for an object or array."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict | list)
    except ValueError:
        return False


@settings(deadline=None)
@given(dumped, st.text(), st.lists(st.integers(0, 200)))
def test_a_value_is_accepted_exactly_to_its_end(text: str, after: str, places: list[int]) -> None:
    accepted, scanner = scan(*cut(text + after, places))
    assert (accepted, scanner.done, scanner.broken, scanner.depth) == (len(text), True, False, 0)


@settings(deadline=None)
@given(
    dumped, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), st.sampled_from(EDITS)), max_size=3)
)
def test_completion_agrees_with_the_reference_parser(text: str, edits: list[tuple[int, int, str]]) -> None:
    for place, removed, added in edits:
        place %= len(text) + 1
        text = text[:place] + added + text[place + removed :]
    accepted, scanner = scan(text)
    assert (scanner.done and not text[accepted:].strip(" \t\n\r")) == is_json(text)


@settings(deadline=None)
@given(dumped, st.integers(0, 200), st.sampled_from(EDITS))
def test_accepted_text_can_be_completed(text: str, place: int, char: str) -> None:
    place %= len(text)
    text = text[:place] + char + text[place:]
    accepted, scanner = scan(text)
    endings = [
        "",
        "{}",
        '"',
        "\\",
        '\\"',
        *(f'{digits}"' for digits in ("0", "00", "000", "0000")),
        "0",
        "null",
        "rue",
    ]
    endings += ["ue", "e", "alse", "lse", "se", "ull", "ll", "l", ":0", '":0', '\\":0', '"":0']
    endings += [f'{digits}":0' for digits in ("0", "00", "000", "0000")]
    closers = "".join(reversed(scanner._open))
    assert any(is_json(text[:accepted] + ending + closers) for ending in endings)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ('{"a": 1,}', 8),
        ("[1 2]", 3),
        ("[01]", 2),
        ("[-]", 2),
        ("[1.]", 3),
        ("[tru]", 4),
        ("[NaN]", 1),
        ('["\n"]', 2),
        ('["\\x"]', 3),
        ('["\\u12G4"]', 6),
        ("{]", 1),
        ("[}", 1),
        ('{"a"}', 4),
        ("1", 0),
        ('"a"', 0),
        ("[,]", 1),
        ("{1:2}", 1),
    ],
)
def test_scanning_stops_at_the_first_invalid_character(text: str, accepted: int) -> None:
    found, scanner = scan(text)
    assert (found, scanner.broken, scanner.done) == (accepted, True, False)


def test_a_nested_value_ends_at_its_depth() -> None:
    scanner = JsonScanner()
    scanner.feed('{"a": ')
    assert scanner.feed('{"b": [{}]}, "c": 1}', depth=1) == len('{"b": [{}]}')
    assert not scanner.done
