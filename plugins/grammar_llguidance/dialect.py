"""The drafts of JSON Schema, and the keywords of each.

llmfw ignores keywords that a schema's draft does not define, as all validators do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DRAFT_4 = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "dependencies",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "type",
    "uniqueItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
]
_DRAFT_6 = [*_DRAFT_4, "const", "contains", "propertyNames"]
_DRAFT_7 = [*_DRAFT_6, "if", "then", "else"]
_DRAFT_2019 = [
    *(keyword for keyword in _DRAFT_7 if keyword != "dependencies"),
    *["$recursiveRef", "dependentRequired", "dependentSchemas", "minContains", "maxContains"],
    *["unevaluatedItems", "unevaluatedProperties"],
]
_DRAFT_2020 = [
    *(keyword for keyword in _DRAFT_2019 if keyword not in ("additionalItems", "$recursiveRef")),
    "$dynamicRef",
    "prefixItems",
]


@dataclass(frozen=True)
class Dialect:
    """One draft of JSON Schema.

    Attributes:
        number: 4, 6, 7, 2019 or 2020.
        keywords: the keywords that constrain a value.
    """

    number: int
    keywords: frozenset[str]

    @property
    def id_keyword(self) -> str:
        """Name of the keyword that identifies a schema by a URI."""
        return "id" if self.number == 4 else "$id"

    @property
    def ref_stands_alone(self) -> bool:
        """Whether validators ignore the other keywords of a schema that has a `$ref`."""
        return self.number <= 7


DIALECTS = {
    "http://json-schema.org/draft-04/schema": Dialect(4, frozenset(_DRAFT_4)),
    "http://json-schema.org/draft-06/schema": Dialect(6, frozenset(_DRAFT_6)),
    "http://json-schema.org/draft-07/schema": Dialect(7, frozenset(_DRAFT_7)),
    "https://json-schema.org/draft/2019-09/schema": Dialect(2019, frozenset(_DRAFT_2019)),
    "https://json-schema.org/draft/2020-12/schema": Dialect(2020, frozenset(_DRAFT_2020)),
}
LATEST = DIALECTS["https://json-schema.org/draft/2020-12/schema"]
OLDEST = "http://json-schema.org/draft-03/schema"


def dialect_of(schema: Any, default: Dialect = LATEST) -> Dialect | None:
    """Return the dialect that a schema's `$schema` names; `default` if it names none, or an unknown one.

    Returns None for draft 3, which is not supported.
    """
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(name, str):
        return default
    name = name.removesuffix("#")
    return None if name == OLDEST else DIALECTS.get(name, default)
