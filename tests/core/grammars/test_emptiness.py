"""An empty output is known to be wrong only where the client's grammar says so by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmfw.core.base.request import GrammarSpec
from llmfw.core.grammars.emptiness import needs_text

WORD = {"type": "const_string", "value": "yes"}
ANY = {"type": "any_text"}
TAG = {"type": "tag", "begin": "<a>", "content": ANY, "end": ""}
BARE_TAG = {"begin": "", "content": ANY, "end": ""}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (WORD, True),
        ({"type": "const_string", "value": ""}, False),
        ({"type": "json_schema", "json_schema": {}}, True),
        (ANY, False),
        ({"type": "regex", "pattern": "a"}, False),
        ({"type": "or", "elements": [WORD, WORD]}, True),
        ({"type": "or", "elements": [WORD, ANY]}, False),
        ({"type": "or", "elements": []}, False),
        ({"type": "sequence", "elements": [ANY, WORD]}, True),
        ({"type": "sequence", "elements": [ANY]}, False),
        (TAG, True),
        ({"type": "tag", **BARE_TAG}, False),
        ({"type": "triggered_tags", "tags": [TAG]}, False),
        ({"type": "triggered_tags", "tags": [TAG], "at_least_one": True}, True),
        ({"type": "tags_with_separator", "tags": [TAG, BARE_TAG], "at_least_one": True}, False),
        ({"type": ["or"]}, False),
        (3, False),
    ],
)
def test_some_formats_need_text(form: Any, expected: bool) -> None:
    assert needs_text(GrammarSpec("structural_tag", json.dumps({"format": form}))) is expected


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("json_schema", "{}", True),
        ("regex", "a*", False),
        ("regex", "a", False),
        ("ebnf", 'root ::= "a"', False),
        ("structural_tag", "no JSON", False),
        ("structural_tag", "[]", False),
    ],
)
def test_backends_alone_read_expressions(kind: str, source: str, expected: bool) -> None:
    assert needs_text(GrammarSpec(kind, source)) is expected
