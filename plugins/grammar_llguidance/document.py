"""A client's JSON schema: parses it within limits, and resolves its references.

Does not depend on the meaning of keywords.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from llmfw.core import RequestError
from llmfw.core.base.unreadable import unreadable

from .dialect import OLDEST, dialect_of

MAX_BYTES = 1_000_000
MAX_DEPTH = 100  # levels of JSON; llguidance's limit is 128, and a rewritten schema may be a little deeper


_MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas"}
_LONG_NUMBER = re.compile(r"(\d{40})\d+")


def refused(place: str, keyword: str, reason: str) -> RequestError:
    """Return the error for a schema's keyword that cannot be enforced.

    Args:
        place: JSON pointer to the schema that has the keyword.
        keyword: name of the keyword.
        reason: why it cannot be enforced, and what to do.
    """
    reason = _LONG_NUMBER.sub(r"\1…", reason)
    return RequestError(f"the schema's {keyword!r} at {f'#{place}'!r} cannot be held to: {reason}")


class Document:
    """A parsed schema, in which references can be resolved.

    Attributes:
        root: the schema.
        dialect: draft in which it is written.

    Args:
        source: JSON text of the schema.

    Raises:
        RequestError: the text is not JSON, not a schema, too large, too deep, or of an unsupported draft.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_BYTES:
            raise RequestError(f"the schema has {len(source)} characters; the limit is {MAX_BYTES}")
        too_deep = RequestError(f"the schema is nested too deeply; the limit is {MAX_DEPTH} levels of JSON")
        try:
            self.root = json.loads(source)
        except RecursionError:
            raise too_deep from None
        except ValueError as error:
            raise RequestError(f"the schema is not JSON: {unreadable(error)}") from error
        if not isinstance(self.root, (dict, bool)):
            raise RequestError(
                f"a schema is an object or a boolean, not {str(self.root)[:40]!r}; send one of these"
            )
        if _depth(self.root) > MAX_DEPTH:
            raise too_deep
        dialect = dialect_of(self.root)
        if dialect is None:
            raise refused("", "$schema", f"{OLDEST} is not supported; use draft 4 or later")
        self.dialect = dialect
        self._base = ""
        if isinstance(self.root, dict):
            own = self.root.get(self.dialect.id_keyword)
            self._base = own.removesuffix("#") if isinstance(own, str) else ""
        self._anchors = {name: place for place, name in _anchors(self.root, "")}

    def locate(self, reference: Any, place: str) -> str:
        """Return the JSON pointer that a `$ref` refers to.

        Raises:
            RequestError: the reference is not a string, refers to another document, or names an unknown
                anchor.
        """
        if not isinstance(reference, str):
            raise refused(place, "$ref", "it must be a string")
        target, _, fragment = reference.partition("#")
        if target not in ("", self._base):
            raise refused(
                place, "$ref", f"{reference!r} is outside of this schema; put what it names into '$defs'"
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise refused(place, "$ref", f"there is no anchor {fragment!r}")
            return self._anchors[fragment]
        return fragment

    def at(self, pointer: str, place: str = "") -> Any:
        """Return the value that a JSON pointer refers to.

        Args:
            pointer: the pointer.
            place: JSON pointer to the schema with the `$ref`, for errors.

        Raises:
            RequestError: nothing is at the pointer.
        """
        found: Any = self.root
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and len(key) < 10 and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise refused(place, "$ref", f"there is nothing at {f'#{pointer}'!r}")
        return found


def step(place: str, *keys: str | int) -> str:
    """Return a JSON pointer, extended by keys."""
    return place + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _depth(value: Any) -> int:
    """Return how deeply JSON is nested; if deeper than the limit, any number above the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        children: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                children += item.values()
            elif isinstance(item, list):
                children += item
        level, depth = [child for child in children if isinstance(child, (dict, list))], depth + 1
    return depth


def _anchors(value: Any, place: str, *, are_names: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the (JSON pointer, name) of each anchor.

    Args:
        are_names: whether the keys of this object are names of properties or definitions, not keywords.
    """
    if isinstance(value, dict):
        for keyword in ("$anchor", "$id", "id"):
            name = value.get(keyword)
            if not are_names and isinstance(name, str) and (keyword == "$anchor" or name.startswith("#")):
                yield place, name.removeprefix("#")
        items: Any = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return
    for key, child in items:
        if are_names or key not in ("enum", "const"):  # these contain values, not schemas
            yield from _anchors(child, step(place, key), are_names=not are_names and key in _MAPS)
