"""Decides whether a grammar rules out an empty output.

Regular expressions and context-free grammars are not checked, because only a backend can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from llmfw.core.base.request import GrammarSpec


def needs_text(spec: GrammarSpec) -> bool:
    """Return whether every output of a client's grammar has text.

    JSON always has text, and so does a choice. False for a grammar that may allow an empty output, and for
    regular expressions and context-free grammars, which only the backend interprets.
    """
    if spec.kind == "json_schema":
        return True
    if spec.kind != "structural_tag":
        return False
    try:
        tag = msgspec.json.decode(spec.source)
    except ValueError:
        return False
    return isinstance(tag, dict) and _needs_text(tag.get("format"))


def _needs_text(form: Any) -> bool:
    if not isinstance(form, dict):
        return False
    kind = form.get("type")
    rule = _RULES.get(kind) if isinstance(kind, str) else None
    return rule is not None and rule(form)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _in_tag(tag: Any) -> bool:
    return isinstance(tag, dict) and bool(
        tag.get("begin") or tag.get("end") or _needs_text(tag.get("content"))
    )


def _in_every(forms: list[Any], rule: Callable[[Any], bool]) -> bool:
    return bool(forms) and all(map(rule, forms))


def _in_tags(form: Mapping[str, Any]) -> bool:
    return form.get("at_least_one") is True and _in_every(_list(form.get("tags")), _in_tag)


_RULES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "json_schema": lambda form: True,
    "const_string": lambda form: bool(form.get("value")),
    "sequence": lambda form: any(map(_needs_text, _list(form.get("elements")))),
    "or": lambda form: _in_every(_list(form.get("elements")), _needs_text),
    "tag": _in_tag,
    "triggered_tags": _in_tags,
    "tags_with_separator": _in_tags,
}
