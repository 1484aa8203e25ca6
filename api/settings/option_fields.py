"""Describes the options that a component declares in its `Options`: names, types, defaults and descriptions.

Does not depend on where their values come from (`component_options`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ATTRIBUTE = re.compile(r"(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option of a component, described as text.

    Attributes:
        type: type and allowed values, as in "whole number, 0 or more".
        default: default as written in a config file; None: no default, the option is required.
        about: description; empty if the component gives none.
        example: example of a value, as text; None without an example.
        fault: why the default is not a valid value of the option; None if it is, or if there is no default.
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

    from llmfw.core.base.values import as_text
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

    _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        if match := _ATTRIBUTE.fullmatch(line.strip()) if _depth(line) <= 4 else None:
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _type_of(annotation: Any) -> tuple[str, str]:
    """Return a type as text, and the description in its metadata; "" if there is none."""
    import msgspec.inspect

    from llmfw.core.base.values import in_words

    info: Any = msgspec.inspect.type_info(annotation)
    is_described = isinstance(info, msgspec.inspect.Metadata)
    return in_words(info), str((info.extra_json_schema or {}).get("description", "")) if is_described else ""
