"""Describes the options that a component declares in its `Options`: names, types, defaults and descriptions.

Does not depend on where their values come from (`component_options`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ATTRIBUTE = re.compile(r"^ {1,4}(\w+): (.*(?:\n(?! {1,4}\w+: ).*)*)", re.MULTILINE)
"""Matches an entry of a docstring's section, with the lines up to the next entry."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option of a component, described as text.

    Attributes:
        type: type and allowed values, as in "whole number, 0 or more".
        default: default as written in a config file; None: no default, the option is required.
        about: description; empty if the component gives none.
        example: example of a value, as text; None without an example.
        fault: why the default is not a valid value of the option; None if the default is valid, or if there
            is none.
    """

    name: str
    type: str
    default: str | None
    about: str
    example: str | None = None
    fault: str | None = None


def fields_of(struct: type[Any]) -> list[OptionField]:
    """Return the options that a msgspec Struct declares, in the order of its fields.

    Raises:
        Exception: any exception, if msgspec cannot use the type of a field.
    """
    import msgspec

    from llmfw.core.base.allowed_values import as_text
    from llmfw.core.plugin.component_options import default_of, fault_of_default  # imports msgspec

    told: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        told |= attributes_in(base.__doc__ or "")
    found = []
    for field in msgspec.structs.fields(struct):
        kind, described = _type_of(field.type)
        default = default_of(field)
        has_default = default is not msgspec.NODEFAULT
        about = described or told.get(field.name, "")
        shown = "none" if default is None else msgspec.json.encode(default).decode() if has_default else None
        fault = fault_of_default(field)
        example = as_text(default) if has_default and fault is None else None
        found.append(OptionField(field.encode_name, kind, shown, about, example, fault))
    return found


def attributes_in(docstring: str) -> dict[str, str]:
    """Return the entries under "Attributes:" in a docstring: name → text."""
    import inspect

    section = inspect.cleandoc(docstring).partition("Attributes:\n")[2]
    [section, *_] = re.split(r"^(?=\S)", section, maxsplit=1, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}


def _type_of(annotation: Any) -> tuple[str, str]:
    """Return a type as text, and the description in its metadata; "" if there is none."""
    import msgspec.inspect

    from llmfw.core.base.allowed_values import in_words

    info: Any = msgspec.inspect.type_info(annotation)
    is_described = isinstance(info, msgspec.inspect.Metadata)
    return in_words(info), str((info.extra_json_schema or {}).get("description", "")) if is_described else ""
