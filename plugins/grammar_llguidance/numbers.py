"""Rewrites the JSON Schema keywords of numbers, and checks constants.

Validators compute with doubles, llguidance with decimal digits. Both agree on numbers that a double
represents exactly, and on inclusive bounds. This module narrows all other keywords until both agree.
Exclusive bounds become inclusive ones, because llguidance 1.9 accepts 0 if `exclusiveMinimum` is 0 and
`maximum` is below 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from .document import refused

SAFE = 2**53 - 1  # doubles represent all integers up to this one
DECIMALS = Fraction(1, 10**6)  # coarse enough that no number next to an exclusive bound rounds to the bound
_MANY = 10**9  # from this number on, 6 decimals are more digits than a double has


def number_keywords(own: dict[str, Any], place: str, draft: int, only_integers: bool) -> dict[str, Any]:
    """Rewrite a schema's number keywords to the latest draft.

    Args:
        own: keywords of the client's schema.
        place: JSON pointer to the schema.
        draft: number of the schema's draft.
        only_integers: whether the schema allows only integers.
    """
    out: dict[str, Any] = {}
    exclusive: dict[str, int | float] = {}
    for side, sign in (("minimum", 1), ("maximum", -1)):
        strict = "exclusive" + side.capitalize()
        if draft == 4:
            flag = own.get(strict, False)
            if not isinstance(flag, bool):
                raise refused(place, strict, "in draft 4 it is true or false")
            bounds = {strict if flag else side: own[side]} if side in own else {}
        else:
            bounds = {name: own[name] for name in (side, strict) if name in own}
        for name, value in bounds.items():
            (exclusive if name == strict else out)[side] = _bound(value, name, place, sign)
    step = _step(own["multipleOf"], place) if "multipleOf" in own else None
    if step is None and exclusive and not only_integers:
        step = DECIMALS if all(abs(value) < _MANY for value in exclusive.values()) else Fraction(1)
    for side, value in exclusive.items():
        _add_exclusive(out, side, value, step or Fraction(1))
    if step is not None:
        out["multipleOf"] = _number(step)
        out.setdefault("minimum", -SAFE)
        out.setdefault("maximum", SAFE)
    return out


def _add_exclusive(out: dict[str, Any], side: str, value: float, step: Fraction) -> None:
    """Add an exclusive bound as an inclusive one: the multiple of `step` next to it.

    Args:
        side: "minimum" or "maximum".
    """
    multiples = Fraction(str(value)) / step
    if side == "minimum":
        next_to_it, stricter = (math.floor(multiples) + 1) * step, max
    else:
        next_to_it, stricter = (math.ceil(multiples) - 1) * step, min
    bound = _number(next_to_it)
    out[side] = stricter(bound, out.get(side, bound))


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _bound(value: Any, name: str, place: str, sign: int) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refused(place, name, f"it must be a number, not {value!r}")
    if value != value:  # noqa: PLR0124 - NaN; math.isnan takes no integer beyond the doubles
        raise refused(place, name, "it is not a number")
    if value * sign > SAFE:
        raise refused(place, name, f"numbers beyond ±{SAFE} are not exact as doubles")
    value = max(-SAFE, min(SAFE, value))
    if float(value).is_integer():
        return int(value)
    if len(repr(value).replace(".", "").lstrip("-0").partition("e")[0]) > 15 or abs(value) < 1e-9:
        raise refused(place, name, f"{value!r} has more digits than a double holds exactly")
    if name.startswith("exclusive") and (Fraction(str(value)) / DECIMALS).denominator != 1:
        raise refused(place, name, f"{value!r} has more than 6 decimals")
    return value


def _step(value: Any, place: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 2**31:
        raise refused(
            place, "multipleOf", f"it must be a number above 0 and at most 2147483648, not {value!r}"
        )
    step = Fraction(value)
    if step.denominator > 2**10:
        raise refused(
            place,
            "multipleOf",
            f"{value!r} is not an exact double, so that validators find multiples of it that they reject; "
            "use an integer in smaller units, or a string with a pattern",
        )
    return step


def check_steps(steps: set[Fraction]) -> None:
    """Raise RequestError if the least common multiple of all `multipleOf` exceeds llguidance's limit."""
    scale = max((_decimals(step) for step in steps), default=0)
    total = math.lcm(*(int(step * 10**scale) for step in steps))
    if total >= 2**31:
        raise refused(
            "", "multipleOf", f"the least common multiple of all in this schema, {total}, is too large"
        )


def _decimals(step: Fraction) -> int:
    return next(n for n in range(32) if (step * 10**n).denominator == 1)


def plain_value(value: Any, keyword: str, place: str) -> Any:
    """Return a constant in a form that llguidance interprets correctly, for example 1 for 1.0.

    Raises:
        RequestError: the constant has a number that is not exact as a double, or a character that is never
            generated.
    """
    if isinstance(value, dict):
        return {check_text(k, keyword, place): plain_value(v, keyword, place) for k, v in value.items()}
    if isinstance(value, list):
        return [plain_value(item, keyword, place) for item in value]
    if isinstance(value, str):
        return check_text(value, keyword, place)
    if isinstance(value, bool) or value is None:
        return value
    if not abs(value) <= SAFE:  # NaN, too
        raise refused(place, keyword, f"numbers beyond ±{SAFE} are not exact as doubles")
    if float(value).is_integer():
        return int(value)
    if abs(value) < 1e-9 or len(repr(value)) > 18:
        raise refused(place, keyword, f"{value!r} has more digits than a double holds exactly")
    return value


def check_text(text: str, keyword: str, place: str) -> str:
    """Return `text`; raise RequestError if it has characters that are never generated."""
    for char in text:
        if (char < " " and char not in "\b\f\n\r\t") or "\ud800" <= char <= "\udfff" or char == "\x7f":
            raise refused(place, keyword, f"the character U+{ord(char):04X} is never generated")
    return text
