"""Fields that have several names, because the APIs of other servers name them differently."""

from __future__ import annotations

from typing import Any

import msgspec

from llmfw.core.base.errors import RequestError

REPETITION_PENALTY = ("repetition_penalty", "repeat_penalty")
THINKING_BUDGET = ("thinking_budget", "thinking_token_budget")
MAX_TOKENS = ("max_tokens", "max_completion_tokens")


def field_given(body: msgspec.Struct, names: tuple[str, ...]) -> tuple[str, Any]:
    """Return the value of a field that has several names, and the name under which the request body sets it.

    If the field is not set, returns the first name and None.

    Args:
        names: names of the field. The body may lack some of them.

    Raises:
        RequestError: the body gives different values under two names.
    """
    given = [(name, value) for name in names if (value := getattr(body, name, None)) is not None]
    for name, value in given[1:]:
        first, other = given[0]
        if value != other:
            raise RequestError(
                f"{first} is {other} and {name} is {value}; they mean the same: give one", param=name
            )
    return given[0] if given else (names[0], None)
