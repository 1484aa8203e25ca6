"""A JSON schema with valid and invalid values, for tests of grammar backends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar

from .grammar_case import GrammarCase

DRAFT_4, DRAFT_6, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
DRAFT_2019, DRAFT_2020 = (f"https://json-schema.org/draft/{name}/schema" for name in ("2019-09", "2020-12"))

INT, BOOL, STR, NULL = ({"type": name} for name in ("integer", "boolean", "string", "null"))


class SchemaExample(NamedTuple):
    """A JSON schema.

    Attributes:
        schema: the schema.
        fits: values that are valid. Keys of objects are in the order of the schema.
        misfits: values that are invalid.
        is_hard: whether a backend may refuse the schema although it reads all of its keywords.
    """

    schema: Any
    fits: Sequence[Any]
    misfits: Sequence[Any]
    is_hard: bool = False

    @property
    def spec(self) -> GrammarSpec:
        """Spec for a backend to compile."""
        return GrammarSpec("json_schema", json.dumps(self.schema))


def texts_of(value: Any) -> Sequence[str]:
    """Return the usual JSON texts of a value: with and without white space, and with and without escapes for
    letters beyond ASCII. A backend may accept only one."""
    texts = [
        json.dumps(value, separators=separators, ensure_ascii=is_ascii)
        for separators in ((",", ":"), (", ", ": "))
        for is_ascii in (True, False)
    ]
    return list(dict.fromkeys(texts))


def accepts(case: GrammarCase, grammar: Grammar, value: Any) -> bool:
    """Return whether a grammar accepts at least one text of a value."""
    return any(case.fits(grammar, text) for text in texts_of(value))


def closed(
    properties: Mapping[str, Any], required: Sequence[str] = (), more: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Return a schema for objects that have only these properties.

    Args:
        more: further keywords.
    """
    own: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return own | ({"required": list(required)} if required else {}) | dict(more)
