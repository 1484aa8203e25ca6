"""Reads a request's tools: which tools the model sees, which it may call, and whether it must call one.

Checks the definitions and `tool_choice`, and describes the allowed calls as a structural tag's format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from llmfw.api.text.structured import ANY_OBJECT, Format
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.parsers import CallFormat

Tool = Mapping[str, Any]
Mode = Literal["none", "auto", "required", "named"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """The model's permitted use of tools.

    Attributes:
        mode: "none": no calls; "auto": the model decides; "required": at least one call and nothing else;
            "named": one call of one tool.
        defined: the request's tools.
        callable: the tools that may be called.
        one_call: whether at most one call is allowed.
    """

    mode: Mode = "none"
    defined: Sequence[Tool] = ()
    callable: Sequence[Tool] = ()
    one_call: bool = False

    @property
    def must_call(self) -> bool:
        """Whether the answer must consist of calls."""
        return self.mode in ("required", "named")

    @property
    def is_restricted(self) -> bool:
        """Whether the model sees tools that it may not call."""
        return len(self.callable) < len(self.defined)

    @property
    def strict(self) -> int | None:
        """Index of the first callable tool that is `strict` (its arguments must fit its schema), or None."""
        callable = {
            _function(tool)["name"] for tool in self.callable
        }  # by name, because comparing tools would compare their schemas
        found = (
            i
            for i, tool in enumerate(self.defined)
            if _function(tool)["name"] in callable and _function(tool).get("strict")
        )
        return next(found, None)


def tool_use(
    tools: Sequence[Tool] | None, choice: str | Mapping[str, Any] | None, parallel: bool | None
) -> ToolUse:
    """Return the permitted use of tools, from `tools`, `tool_choice` and `parallel_tool_calls`.

    Raises:
        RequestError: a definition or the choice is invalid, or the choice names an unknown tool.
    """
    # An empty list of tools may come with "auto", because the model then has nothing to choose.
    may_lack_tools = choice in (None, "none") or (choice == "auto" and tools is not None)
    tools = tools or ()
    _check_tools(tools)
    mode, names = _read_choice(choice)
    if not tools and not may_lack_tools:
        raise RequestError(
            f"tool_choice is {choice!r:.100}, and there are no tools; send tools, or leave it out",
            param="tool_choice",
        )
    if not tools or mode == "none":
        return ToolUse()
    callable = tools
    if names is not None:
        by_name = {_function(tool)["name"]: tool for tool in tools}
        for name, param in names:
            if name not in by_name:
                raise RequestError(
                    f"{param} is {name!r}, which is not one of the tools; they are: {', '.join(by_name)}",
                    param=param,
                )
        callable = [by_name[name] for name in dict(names)]
    return ToolUse(mode=mode, defined=tools, callable=callable, one_call=mode == "named" or parallel is False)


def calls_only(use: ToolUse, calls: CallFormat) -> Format:
    """Return the format of an output that is tool calls and nothing else."""
    elements = [_const(calls.before), _joined(use, calls), _const(calls.after)]
    written = [element for element in elements if element is not None]
    return {"type": "sequence", "elements": written} if len(written) > 1 else written[0]


def text_and_calls(use: ToolUse, calls: CallFormat) -> Format:
    """Return the format of text that may contain tool calls."""
    tags, stop, trigger = _tags(use, calls), use.one_call, calls.trigger
    if calls.before:  # the model's format wraps all calls in one tag
        around = {"type": "tag", "begin": calls.before, "content": _joined(use, calls), "end": calls.after}
        tags, stop, trigger = [around], True, calls.before
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": stop,
    }


def with_prefix(text: str, format: Format) -> Format:
    """Return the format of a constant text followed by `format`."""
    return {"type": "sequence", "elements": [{"type": "const_string", "value": text}, format]}


def _const(text: str) -> Format | None:
    return {"type": "const_string", "value": text} if text else None


def _joined(use: ToolUse, calls: CallFormat) -> Format:
    return {
        "type": "tags_with_separator",
        "tags": _tags(use, calls),
        "separator": calls.between,
        "at_least_one": True,
        "stop_after_first": use.one_call,
    }


def _tags(use: ToolUse, calls: CallFormat) -> list[Format]:
    """Return, for each tool that may be called, a format of type "tag" that describes a call of the tool."""
    return [
        {
            "type": "tag",
            "begin": calls.begin.replace("{name}", function["name"]),
            "content": {"type": "json_schema", "json_schema": _arguments_schema(use, function)},
            "end": calls.end,
        }
        for function in map(_function, use.callable)
    ]


def _arguments_schema(use: ToolUse, function: Mapping[str, Any]) -> Format:
    """Return the schema of a call's arguments.

    This is the tool's own schema if the tool is strict or a call is required; otherwise any object is
    allowed.
    """
    own = function.get("parameters") if use.must_call or function.get("strict") else None
    return {**ANY_OBJECT, **(own or {})}


def _function(tool: Tool) -> Mapping[str, Any]:
    function: Mapping[str, Any] = tool["function"]
    return function


def _read_choice(choice: Any) -> tuple[Mode, list[tuple[str, str]] | None]:
    """Return the mode, and the tools that may be called; None: all tools may be called.

    Each tool is a pair of its name and the path of the request field that names it.
    """
    if choice is None or choice == "auto":
        return "auto", None
    if choice == "none":
        return "none", None
    if choice == "required":
        return "required", None
    if choice == "any":
        _wrong("tool_choice", choice, "required, which other APIs call any")
    if not isinstance(choice, dict):
        _wrong("tool_choice", choice, "none, auto, required or an object with type")
    kind = choice.get("type")
    if kind == "function":
        return "named", [_name_of(choice, "tool_choice")]
    if kind != "allowed_tools":
        _wrong("tool_choice.type", kind, "'function' or 'allowed_tools'")
    allowed, param = choice.get("allowed_tools"), "tool_choice.allowed_tools"
    if not isinstance(allowed, dict):
        _wrong(param, allowed, "an object with mode and tools")
    mode, tools = allowed.get("mode"), allowed.get("tools")
    if not (isinstance(tools, list) and tools):
        _wrong(f"{param}.tools", tools, "a list of tools that is not empty")
    names = [_name_of(tool, f"{param}.tools[{i}]") for i, tool in enumerate(tools)]
    if mode == "auto":
        return "auto", names
    if mode == "required":
        return "required", names
    return _wrong(f"{param}.mode", mode, "auto or required")


def _name_of(given: Any, param: str) -> tuple[str, str]:
    """Return the name in {"type": "function", "function": {"name": ...}}, and its path."""
    kind = given.get("type") if isinstance(given, dict) else None
    if kind != "function":
        _wrong(f"{param}.type", kind, "'function'")
    function = given.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    path = f"{param}.function.name"
    if not isinstance(name, str):
        _wrong(path, name, "the name of a tool")
    return name, path


def _check_tools(tools: Sequence[Tool]) -> None:
    names: dict[str, int] = {}
    for i, tool in enumerate(tools):
        param = f"tools[{i}]"
        if tool.get("type") != "function":
            _wrong(f"{param}.type", tool.get("type"), "'function': this server has no other kind of tool")
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not (isinstance(function, dict) and isinstance(name, str) and _NAME.fullmatch(name)):
            _wrong(
                f"{param}.function.name",
                name,
                "the function's name: 1 to 64 letters, digits, underscores and dashes",
            )
        if name in names:
            raise RequestError(
                f"{param}.function.name is {name!r}, and so is tools[{names[name]}]'s; names must differ",
                param=f"{param}.function.name",
            )
        names[name] = i
        _check_function(function, f"{param}.function")


def _check_function(function: Mapping[str, Any], param: str) -> None:
    parameters, strict = function.get("parameters"), function.get("strict")
    if not isinstance(parameters, dict | None):
        _wrong(f"{param}.parameters", parameters, "a JSON schema: an object")
    if parameters and parameters.get("type", "object") != "object":
        _wrong(f"{param}.parameters.type", parameters["type"], "'object': arguments have names")
    if not isinstance(strict, bool | None):
        _wrong(f"{param}.strict", strict, "true or false")
    if not isinstance(function.get("description"), str | None):
        _wrong(f"{param}.description", function["description"], "a string")


def _wrong(param: str, value: Any, expected: str) -> NoReturn:
    raise RequestError(f"{param} is {value!r:.100}; it must be {expected}", param=param)
