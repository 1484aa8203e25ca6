"""Checks that a client can read the tool calls that a tool parser returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmfw.core.interfaces.parsers import ToolCallDelta, ToolParser

from .returned import Check, WrongReturnError

_KEY = "_llmfw_call_order"


class CallOrder:
    """The tool calls that one parser has returned so far.

    Args:
        names: names of the request's tools; None: unknown, so that any name passes.

    Attributes:
        is_asked: whether the parser is in a call. Calls of its own methods are not checked again.
    """

    def __init__(self, names: frozenset[str] | None) -> None:
        self.is_asked = False
        self._names = names
        self._num_calls = 0

    def check(self, deltas: Sequence[Any]) -> None:
        """Raise WrongReturnError if a ToolCallDelta does not start the next call or continue the last one."""
        for delta in deltas:
            if isinstance(delta, ToolCallDelta):
                self._check(delta)

    def _check(self, delta: ToolCallDelta) -> None:
        if delta.index == self._num_calls:
            if not delta.name:
                raise WrongReturnError(f"returned a call without a name: {delta!r:.200}")
            if self._names is not None and delta.name not in self._names:
                raise WrongReturnError(f"returned a call of a tool that the request lacks: {delta!r:.200}")
            self._num_calls += 1
        elif delta.index < 0 or delta.index != self._num_calls - 1:
            raise WrongReturnError(
                f"returned {delta!r:.200} after {self._num_calls} calls; indices ascend from 0"
            )
        elif delta.name is not None:
            raise WrongReturnError(f"returned the name of a call twice: {delta!r:.200}")


def in_order(own: Callable[..., Any], check: Check | None) -> Callable[..., Any]:
    """Wrap a tool parser's `feed` or `finish` with a check of the returned calls.

    Args:
        own: method of the parser's class.
        check: check of the types in the method's result.
    """

    @functools.wraps(own)
    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        order = vars(self).get(_KEY)
        if order is None:
            order = vars(self)[_KEY] = CallOrder(_names_of(self))
        if order.is_asked:
            return own(self, *args, **kwargs)
        order.is_asked = True
        try:
            found = own(self, *args, **kwargs)
        finally:
            order.is_asked = False
        if check is not None:
            check(found)
        order.check(found)
        return found

    return reading


def _names_of(parser: ToolParser) -> frozenset[str] | None:
    tools = getattr(parser, "tools", None)
    if not isinstance(tools, Sequence):
        return None
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    return frozenset(each["name"] for each in functions if isinstance(each, Mapping) and "name" in each)
