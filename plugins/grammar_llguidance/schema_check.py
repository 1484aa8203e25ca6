"""Rewrites a client's JSON schema into one that llguidance enforces, or refuses it.

llguidance ignores some keywords, interprets some in its own way, and fully supports only the latest draft. So
this module checks every keyword, and rewrites the schema to the latest draft with only keywords that
llguidance enforces. The new schema allows the same values or fewer, never others, so every output matches the
client's schema. docs/structured_output.md lists the values that are excluded. If a keyword cannot be
rewritten, the schema is refused; the error names the keyword and its JSON pointer.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from llmfw.core import RequestError

from .arrays import array_keywords, contains, count, distinct
from .cases import Case, cases_of
from .dialect import dialect_of
from .document import Document, refused, step
from .endings import close
from .formats import KNOWN, PATTERNS
from .negation import Negation
from .numbers import check_steps, number_keywords, plain_value
from .objects import mapping, names, object_keywords
from .one_of import exactly_one
from .overlap import TYPES, Disjointness
from .pattern import PatternError, translate

MAX_LENGTH = 100_000  # longest string, in characters
MAX_PARTS = 50_000  # most subschemas in a rewritten schema

_REFUSED = {
    "$dynamicRef": "what it refers to depends on the value; use '$ref'",
    "$recursiveRef": "what it refers to depends on the value; use '$ref'",
}


def prepare(source: str) -> dict[str, Any]:
    """Rewrite a client's schema for llguidance.

    Args:
        source: JSON text of the schema.

    Raises:
        RequestError: the text is not a schema, or llguidance cannot enforce it; the message names keyword and
            pointer.
    """
    return Rewriter(Document(source)).run()


class Rewriter:
    """Rewrites the schema of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._dialect = document.dialect
        self._proofs = Disjointness(document)
        self._negation = Negation(document)
        self._names: dict[str, str] = {}  # JSON pointer that a `$ref` refers to → name in the new `$defs`
        self._waiting: list[str] = []
        self._steps: set[Fraction] = set()
        self._parts = 0

    def run(self) -> dict[str, Any]:
        """Return the rewritten schema, with its definitions."""
        root = self.rewrite(self._document.root, "")
        definitions: dict[str, Any] = {}
        while self._waiting:
            pointer = self._waiting.pop()
            definitions[self._names[pointer]] = self.rewrite(self._document.at(pointer), pointer)
        check_steps(self._steps)
        return close(root, definitions)

    def rewrite(self, schema: Any, place: str) -> Any:
        """Rewrite a subschema of the document.

        Args:
            schema: the subschema.
            place: JSON pointer to it.
        """
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise RequestError(
                f"the schema is too large: more than {MAX_PARTS} parts, counting what 'if' adds"
            )
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise refused(place, place.rpartition("/")[2], "a schema is an object or a boolean")
        self._check_resource(schema, place)
        own = {key: value for key, value in schema.items() if key in self._dialect.keywords}
        if "$ref" in own and self._dialect.ref_stands_alone:
            own = {"$ref": own["$ref"]}
        for keyword, reason in _REFUSED.items():
            if keyword in own:
                raise refused(place, keyword, reason)
        out, also = self._keywords(own, schema, place)
        # The order matters: llguidance combines the keywords before `allOf` into one part.
        if also:
            out["allOf"] = also
        if "$ref" in own:
            out["$ref"] = self._reference(own["$ref"], place)
        return out

    def _check_resource(self, schema: dict[str, Any], place: str) -> None:
        """Refuse a subschema that has another draft, or that has both an id of its own and references."""
        if place and dialect_of(schema, self._dialect) != self._dialect:
            raise refused(place, "$schema", "a part may not be of another draft than the whole")
        name = schema.get(self._dialect.id_keyword)
        own_address = isinstance(name, str) and not name.startswith("#")
        if place and own_address and '"$ref"' in json.dumps(schema):
            raise refused(place, self._dialect.id_keyword, "references in a part with an address of its own")

    def _reference(self, reference: Any, place: str) -> str:
        pointer = self._document.locate(reference, place)
        self._document.at(pointer, place)
        if pointer not in self._names:
            self._names[pointer] = str(len(self._names))
            self._waiting.append(pointer)
        return f"#/$defs/{self._names[pointer]}"

    def _keywords(self, own: dict[str, Any], schema: Any, place: str) -> tuple[dict[str, Any], list[Any]]:
        out: dict[str, Any] = {}
        also: list[Any] = []
        if "type" in own:
            out["type"] = _types(own["type"], place)
        possible = self._proofs.types(own)
        if "number" in possible:
            only_integers = out.get("type") == "integer"
            out |= number_keywords(own, place, self._dialect.number, only_integers)
            if "multipleOf" in out:
                self._steps.add(Fraction(str(out["multipleOf"])))
        if "string" in possible:
            patterns = self._strings(own, out, place)
            if patterns:
                out["pattern"] = patterns[0]
                also += [{"pattern": pattern} for pattern in patterns[1:]]
        if "array" in possible:
            out |= array_keywords(own, place, self._dialect.number, self.rewrite)
            also += self._more_of_arrays(own, place)
        if "object" in possible:
            members, more = object_keywords(own, place, self.rewrite)
            out |= members
            also += more + self._dependencies(own, place)
        self._constants(own, out, place)
        also += self._combinations(own, place)
        return out, also

    def _strings(self, own: dict[str, Any], out: dict[str, Any], place: str) -> list[str]:
        """Set the lengths and the format of strings in `out`; return the patterns that strings must match."""
        low, high = count(own, "minLength", place), count(own, "maxLength", place)
        if low is not None and low > MAX_LENGTH:
            raise refused(place, "minLength", f"it is {low}; the limit is {MAX_LENGTH}")
        if low:
            out["minLength"] = low
        if high is not None and high <= MAX_LENGTH:
            out["maxLength"] = high
        elif high is not None:
            out["maxLength"] = MAX_LENGTH
        patterns = []
        if "pattern" in own:
            if not isinstance(own["pattern"], str):
                raise refused(place, "pattern", "it must be a string")
            try:
                patterns.append(translate(own["pattern"]))
            except PatternError as error:
                raise refused(place, "pattern", str(error)) from error
        name = own.get("format")
        if isinstance(name, str) and name in PATTERNS:
            patterns.append(PATTERNS[name])
        elif isinstance(name, str) and name in KNOWN:
            out["format"] = name
        return patterns

    def _more_of_arrays(self, own: dict[str, Any], place: str) -> list[Any]:
        also = []
        if "contains" in own and (found := contains(own, place, self.rewrite)):
            also.append(found)
        unique = own.get("uniqueItems", False)
        if not isinstance(unique, bool):
            raise refused(place, "uniqueItems", "it must be true or false")
        if unique:
            items = own.get("items", True)
            simple = not isinstance(items, list) and not own.get("prefixItems")
            values = self._proofs.values(items) if simple else None
            if values is not None:
                values = [plain_value(value, "enum", place) for value in values]
            longest = count(own, "maxItems", place)
            found = distinct(values, longest, place)
            if found is not True:
                others = sorted(TYPES - {"array"})
                also.append({"anyOf": [{"type": others}, found]})
        return also

    def _dependencies(self, own: dict[str, Any], place: str) -> list[Any]:
        """Return schemas that enforce dependencies: either the key is absent, or its requirements hold."""
        also = []
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for key, rule in mapping(own, keyword, place).items():
                there = step(place, keyword, key)
                if isinstance(rule, str):
                    rule = [rule]
                if isinstance(rule, list):
                    then: Any = {"required": names({keyword: rule}, keyword, place)}
                elif keyword == "dependentRequired":
                    raise refused(there, keyword, "it must be an array of names")
                else:
                    then = self.rewrite(rule, there)
                also.append({"anyOf": [{"properties": {key: False}}, then]})
        return also

    def _constants(self, own: dict[str, Any], out: dict[str, Any], place: str) -> None:
        if "const" in own:
            out["const"] = plain_value(own["const"], "const", place)
        if "enum" in own:
            if not isinstance(own["enum"], list):
                raise refused(place, "enum", "it must be an array")
            out["enum"] = [plain_value(value, "enum", place) for value in own["enum"]]

    def _combinations(self, own: dict[str, Any], place: str) -> list[Any]:
        also = []
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword not in own:
                continue
            if not isinstance(own[keyword], list):
                raise refused(place, keyword, "it must be an array of schemas")
            cases, done = cases_of(own, self._proofs) if keyword == "allOf" else ([], set())
            if cases:
                also.append(self._cases(own, cases, place))
            parts = [
                self.rewrite(part, step(place, keyword, i))
                for i, part in enumerate(own[keyword])
                if i not in done
            ]
            if keyword == "allOf":
                also += parts
            elif keyword == "anyOf":
                also.append({"anyOf": parts})
            else:
                also.append(exactly_one(own[keyword], parts, self._proofs, place))
        if "not" in own:
            there = step(place, "not")
            self.rewrite(own["not"], there)  # raises if the schema is malformed
            also.append(self.rewrite(self._negation.negate(own["not"], there), there))
        if "if" in own and ("then" in own or "else" in own):
            also.append(self._condition(own, place))
        return also

    def _cases(self, own: dict[str, Any], cases: list[Case], place: str) -> Any:
        """Return a schema that enforces several conditions on one property."""
        branches = []
        for case in cases:
            outcomes = [
                self.rewrite(own["allOf"][i][keyword], step(place, "allOf", i, keyword))
                for i, keyword in case.outcomes
            ]
            branches.append({"allOf": [self.rewrite(case.guard, step(place, "allOf")), *outcomes]})
        return {"anyOf": branches}

    def _condition(self, own: dict[str, Any], place: str) -> Any:
        """Return a schema for `if`: either `if` and `then` match, or `if` does not match and `else` does."""
        there = step(place, "if")
        yes = [self.rewrite(own["if"], there), self.rewrite(own.get("then", True), step(place, "then"))]
        otherwise = self._negation.negate(own["if"], there)
        no = [self.rewrite(otherwise, there), self.rewrite(own.get("else", True), step(place, "else"))]
        if own.get("then", True) is True:
            # Without `then`, the case in which `if` matches needs nothing else.
            return {"anyOf": [yes[0], {"allOf": no}]}
        return {"anyOf": [{"allOf": yes}, {"allOf": no}]}


def _types(named: Any, place: str) -> Any:
    known = TYPES | {"integer"}
    listed = named if isinstance(named, list) else [named]
    for name in listed:
        if not isinstance(name, str) or name not in known:
            raise refused(place, "type", f"{name!r} is not a type; types are {', '.join(sorted(known))}")
    if isinstance(named, str):
        return named
    # "number" includes "integer".
    return [name for name in dict.fromkeys(listed) if not (name == "integer" and "number" in listed)]
