"""Translates structural tags, which nest free text, tags and JSON, to grammars in Lark syntax.

Free text ends where the next element starts. That element must start with a special token, which no text
contains, or with a literal text. To find the literal, a lexeme contains the free text and the literal, and
ends as early as possible (`[lazy]`). So free text must come last, or be followed by a literal or a special
token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import regex_to_lark

from llmfw.core import RequestError
from llmfw.core.base.unreadable import unreadable

from .json_text import OPTIONS
from .schema_check import prepare

TEXT = "/(?s:.*)/"
MAX_DEPTH = 20


@dataclass(frozen=True)
class Literal:
    """Text that must be generated exactly."""

    text: str


@dataclass(frozen=True)
class AnyText:
    """Free text that must not contain certain texts."""

    excludes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """Any other element, as an expression in Lark syntax."""

    lark: str


Piece = Literal | AnyText | Part


def to_lark(source: str, special_tokens: Mapping[str, int]) -> str:
    """Return the Lark grammar of a structural tag.

    Args:
        source: JSON text of the tag, in the format of `core.grammar` or the older one with `structures` and
            `triggers`.
        special_tokens: ids of special tokens by their text. If a literal contains such a text, the token is
            generated.

    Raises:
        RequestError: the tag is malformed; the message names the field.
    """
    try:
        tag = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the structural tag is not JSON: {unreadable(error)}") from error
    if not isinstance(tag, dict):
        raise RequestError("the structural tag must be an object")
    writer = _Writer(special_tokens)
    start = writer.join(writer.pieces(_format_of(tag), "format"))
    return "\n".join(["%llguidance {}", f"start: {start}", *writer.rules])


def _format_of(tag: dict[str, Any]) -> Any:
    """Return the `format` field of a tag. Convert a tag of the older kind, with `structures`, first."""
    if "structures" not in tag:
        return _field(tag, "format", dict, "structural_tag")
    structures = _field(tag, "structures", list, "structural_tag")
    return {
        "type": "triggered_tags",
        "triggers": tag.get("triggers"),
        "tags": [
            {
                "begin": _field(structure, "begin", str, f"structures[{i}]"),
                "content": {"type": "json_schema", "json_schema": structure.get("schema", {})},
                "end": _field(structure, "end", str, f"structures[{i}]"),
            }
            for i, structure in enumerate(structures)
        ],
    }


class _Writer:
    """Collects the rules of one grammar.

    Args:
        special_tokens: as for `to_lark`.
    """

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        self.rules: list[str] = []
        self._tokens = special_tokens
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._token_texts = re.compile("|".join(map(re.escape, longest_first))) if special_tokens else None

    def pieces(self, format: Any, place: str, depth: int = 0) -> list[Piece]:
        """Translate a format to a sequence of literals, free text and expressions in Lark syntax.

        Args:
            format: the format.
            place: path of its field, for errors.
            depth: number of formats around it.
        """
        kind = _field(format, "type", str, place)
        if depth > MAX_DEPTH:
            raise RequestError(
                f"the structural tag is nested more than {MAX_DEPTH} levels deep, at {place}; nest it less"
            )
        if kind == "const_string":
            return self._literals(_field(format, "value", str, place))
        if kind == "any_text":
            return [AnyText(tuple(_texts(format, "excludes", place)))]
        if kind == "json_schema":
            return [Part(self._json(format, place))]
        if kind == "regex":
            return [Part(self._regex(_field(format, "pattern", str, place), place))]
        if kind == "grammar":
            return [Part(self._rule(f"%lark {{\n{_field(format, 'grammar', str, place)}\n}}"))]
        if kind == "tag":
            return self._tag(format, place, depth)
        if kind in ("sequence", "or"):
            elements = _field(format, "elements", list, place)
            if not elements:
                raise RequestError(f"the structural tag's {place}.elements is empty; at least one is needed")
            parts = [self.pieces(e, f"{place}.elements[{i}]", depth + 1) for i, e in enumerate(elements)]
            if kind == "sequence":
                return [piece for part in parts for piece in part]
            return [Part(self._rule(" | ".join(self.join(part) for part in parts)))]
        if kind == "triggered_tags":
            return [Part(self._triggered(format, place, depth))]
        if kind == "tags_with_separator":
            return [Part(self._separated(format, place, depth))]
        raise RequestError(
            f"the structural tag's {place}.type is {kind!r}; see the documentation for what it can be"
        )

    def join(self, pieces: Sequence[Piece]) -> str:
        """Return the concatenation of pieces as an expression in Lark syntax."""
        written: list[str] = []
        rest = list(pieces)
        while rest:
            piece, *rest = rest
            if isinstance(piece, Literal):
                written.append(_quoted(piece.text))
            elif isinstance(piece, Part):
                written.append(piece.lark)
            elif rest and isinstance(rest[0], Literal):
                written.append(self._text_until(piece, rest[0].text))
                rest = rest[1:]
            elif rest and not (isinstance(rest[0], Part) and rest[0].lark.startswith("<[")):
                raise RequestError(
                    "in a structural tag, any_text has to be last, or a literal text has to follow it"
                )
            else:
                written.append(self._rule(self._text(piece)))
        return " ".join(written) or '""'

    def _text_until(self, text: AnyText, end: str) -> str:
        return self._rule(f"{self._text(text)} {_quoted(end)}", lazy=True)

    def _rule(self, body: str, *, lazy: bool = False) -> str:
        name = f"r{len(self.rules)}"
        self.rules.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name

    def _text(self, text: AnyText) -> str:
        """Return a terminal for free text."""
        if not text.excludes:
            return TEXT
        banned = "|".join(f"(?:{re.escape(excluded)})" for excluded in text.excludes)
        name = f"T{len(self.rules)}"  # only terminals, which have upper-case names, may use `&` and `~`
        self.rules.append(f"{name}: {TEXT} & ~/{regex_to_lark(f'(?s:.*)(?:{banned})(?s:.*)', '')}/")
        return name

    def _literals(self, text: str) -> list[Piece]:
        """Return the pieces of a literal text, in which special tokens are pieces of their own."""
        found: list[Piece] = []
        position = 0
        for match in self._token_texts.finditer(text) if self._token_texts else ():
            found += [Literal(text[position : match.start()]), Part(f"<[{self._tokens[match.group()]}]>")]
            position = match.end()
        found.append(Literal(text[position:]))
        return [piece for piece in found if piece != Literal("")]

    def _json(self, format: dict[str, Any], place: str) -> str:
        if "json_schema" not in format:
            raise RequestError(f"the structural tag's {place}.json_schema is missing; it must be a schema")
        try:
            schema = prepare(json.dumps(format["json_schema"]))
        except RequestError as error:
            raise RequestError(f"{error} (in the structural tag's {place}.json_schema)") from error
        return self._rule(f"%json {json.dumps(schema | {'x-guidance': OPTIONS})}")

    def _regex(self, pattern: str, place: str) -> str:
        if not pattern:
            raise RequestError(
                f"the structural tag's {place}.pattern is empty; it must be a regular expression"
            )
        return self._rule(regex_terminal(pattern))

    def _tag(self, tag: Any, place: str, depth: int) -> list[Piece]:
        begin = self._literals(_field(tag, "begin", str, place))
        return begin + self._rest_of_tag(tag, place, depth)

    def _rest_of_tag(self, tag: Any, place: str, depth: int) -> list[Piece]:
        content = self.pieces(_field(tag, "content", dict, place), f"{place}.content", depth + 1)
        return content + self._literals(_field(tag, "end", str, place))

    def _triggered(self, format: dict[str, Any], place: str, depth: int) -> str:
        triggers = _texts(format, "triggers", place)
        if not triggers or "" in triggers:
            raise RequestError(
                f"the structural tag's {place}.triggers has to be a list of texts that are not empty"
            )
        after: dict[str, list[str]] = {}
        for i, tag in enumerate(_tags(format, place)):
            where = f"{place}.tags[{i}]"
            begin = _field(tag, "begin", str, where)
            trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
            if trigger is None:
                raise RequestError(
                    f"the structural tag's {where}.begin is {begin!r}; it starts with no trigger"
                )
            rest = self._literals(begin[len(trigger) :]) + self._rest_of_tag(tag, where, depth)
            after.setdefault(trigger, []).append(self.join(rest))
        only = bool(format.get("at_least_one")) and bool(format.get("stop_after_first"))
        text: list[Piece] = [] if only else [AnyText()]
        tags = self._rule(
            " | ".join(
                f"{self.join([*text, *self._literals(trigger)])} ({' | '.join(rests)})"
                for trigger, rests in after.items()
            )
        )
        if only:
            return tags
        last = self._rule(self._text(AnyText(tuple(t for t in triggers if t not in self._tokens))))
        if format.get("stop_after_first"):
            return self._rule(f"{tags} | {last}")
        return self._rule(f"{tags}{'+' if format.get('at_least_one') else '*'} {last}")

    def _separated(self, format: dict[str, Any], place: str, depth: int) -> str:
        tags = self._rule(
            " | ".join(
                self.join(self._tag(tag, f"{place}.tags[{i}]", depth))
                for i, tag in enumerate(_tags(format, place))
            )
        )
        separator = self.join(self._literals(_field(format, "separator", str, place)))
        body = tags if format.get("stop_after_first") else f"{tags} ({separator} {tags})*"
        return self._rule(body if format.get("at_least_one") else f"({body})?")


def regex_terminal(pattern: str) -> str:
    """Return a terminal for a regular expression. `\\d` and `\\w` are ASCII only, as in ECMA-262."""
    return f"/{regex_to_lark(pattern, 'dw')}/"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _tags(format: dict[str, Any], place: str) -> list[Any]:
    tags = _field(format, "tags", list, place)
    if not tags:
        raise RequestError(f"the structural tag's {place}.tags is empty; at least one is needed")
    return tags


def _texts(format: dict[str, Any], key: str, place: str) -> list[str]:
    texts = format.get(key)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"the structural tag's {place}.{key} has to be a list of texts")
    return texts


def _field(value: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        names: dict[Any, str] = {str: "a text", list: "a list", dict: "an object"}
        raise RequestError(f"the structural tag's {place}.{key} has to be {names[kind]}")
    return value[key]
