"""Converts Ollama's messages to OpenAI's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from llmfw.core import RequestError

Message = dict[str, Any]


def chat_messages(messages: Sequence[Message]) -> list[Message]:
    """Return messages in OpenAI's form. The server checks the fields that are the same in both forms.

    Ollama's calls and results may have no ids. A result without an id belongs to the first call of its tool
    that has no result yet.

    Raises:
        RequestError: a message has images, or a call is malformed.
    """
    converted = []
    open_calls: list[Message] = []
    for i, given in enumerate(messages):
        param = f"messages[{i}]"
        refuse_images(given.get("images"), f"{param}.images")
        message = {name: value for name, value in given.items() if name not in _CONVERTED}
        if given.get("thinking"):
            message["reasoning_content"] = given["thinking"]
        if given.get("tool_calls"):
            calls = _calls(given["tool_calls"], f"{param}.tool_calls", f"call_{i}")
            message["tool_calls"] = calls
            open_calls += calls
        if given.get("role") == "tool":
            message |= _answered(given, open_calls)
        converted.append(message)
    return converted


_CONVERTED = ("images", "thinking", "tool_calls", "tool_name", "tool_call_id")


def refuse_images(images: Any, param: str) -> None:
    """Raise RequestError if there are images."""
    if images:
        count = f"{len(images)} images" if isinstance(images, list) else "a value"
        raise RequestError(
            f"{param} has {count}; this route reads text only: leave it out, or send image_url parts to /v1/chat/completions",
            param=param,
            code="unsupported_parameter",
        )


def continues(messages: Sequence[Message]) -> bool:
    """Return whether the answer continues the last message.

    As in Ollama, the answer does so if the last message is the assistant's, with text and no tool calls.
    """
    last = messages[-1]
    return last.get("role") == "assistant" and bool(last.get("content")) and not last.get("tool_calls")


def _calls(calls: Any, param: str, prefix: str) -> list[Message]:
    """Convert tool calls to OpenAI's form: each has an id, and its arguments as JSON text."""
    if not isinstance(calls, list):
        raise RequestError(f"{param} is {calls!r:.100}; it must be a list", param=param)
    return [_call(call, f"{param}[{i}]", f"{prefix}_{i}") for i, call in enumerate(calls)]


def _call(call: Any, param: str, call_id: str) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise RequestError(
            f"{param}.function is missing; a call names its function", param=f"{param}.function"
        )
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments or {}).decode()
    if not isinstance(arguments, str):
        where = f"{param}.function.arguments"
        raise RequestError(f"{where} is {arguments!r:.100}; it must be an object", param=where)
    return {
        "id": call.get("id") or call_id,
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _answered(given: Message, open_calls: list[Message]) -> Message:
    """Return the fields that link a tool's result to its call, and remove the call from `open_calls`."""
    name, call_id = given.get("tool_name"), given.get("tool_call_id")
    for i, call in enumerate(open_calls):
        if (call_id is not None and call["id"] == call_id) or (
            call_id is None and name in (None, call["function"]["name"])
        ):
            del open_calls[i]
            return {"tool_call_id": call["id"], "name": call["function"]["name"]}
    found = {"tool_call_id": call_id, "name": name}
    return {key: value for key, value in found.items() if value is not None}
