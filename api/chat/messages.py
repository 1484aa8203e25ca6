"""Checks the messages of a chat before the chat template renders them.

Checks that each role is a string, that contents and tool calls have the right form, and that each tool result
follows its call. The template checks all other fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.api.media.part import ImagePart, refuse_image
from llmfw.core.base.errors import RequestError

from .roles import ROLES

IMAGE = "image"
"""Type of a part in place of which the server has read an image."""


def check_messages(
    messages: Sequence[dict[str, Any]], template_source: str, *, images: bool = False
) -> list[dict[str, Any]]:
    """Check the messages, and return them with the names that templates expect.

    `reasoning` becomes `reasoning_content`. The role "developer" becomes "system" if the template has a known
    source that does not mention "developer". Roles that OpenAI's API does not have are checked later (see
    `roles`).

    Args:
        template_source: source of the template.
        images: whether the server has read the images, and parts of type IMAGE stand in their place.

    Raises:
        RequestError: a message is invalid; names the field.
    """
    if not messages:
        raise RequestError("messages is empty; at least one is needed", param="messages")
    for i, message in enumerate(messages):
        _check_role(message.get("role"), f"messages[{i}].role")
        _check_content(message.get("content"), f"messages[{i}].content", images)
        _check_tool_calls(message.get("tool_calls"), f"messages[{i}].tool_calls")
    _check_results(messages)
    developer = not template_source or "developer" in template_source
    return [_with_known_names(message, developer) for message in messages]


def _check_role(role: Any, param: str) -> None:
    if not (isinstance(role, str) and role):
        raise RequestError(
            f"{param} is {role!r:.100}; it must be one of {', '.join(sorted(ROLES))}, or a role of the chat template",
            param=param,
        )


def _check_content(content: Any, param: str, images: bool) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RequestError(
            f"{param} is {content!r:.100}; it must be a string or a list of parts", param=param
        )
    for i, part in enumerate(content):
        if isinstance(part, ImagePart):
            refuse_image(part)
        kind = part.get("type") if isinstance(part, dict) else None
        if images and kind == IMAGE:
            continue
        if kind != "text":
            raise wrong_type(kind, f"{param}[{i}]", images)
        if not isinstance(part.get("text"), str):
            raise RequestError(
                f"{param}[{i}].text is {part.get('text')!r:.100}; it must be a string",
                param=f"{param}[{i}].text",
            )


def wrong_type(kind: Any, param: str, images: bool) -> RequestError:
    """Return the error for a content part whose type is not supported.

    Args:
        param: path of the part.
        images: whether images are read.
    """
    known = "parts of type 'text' and 'image_url' only" if images else "parts of type 'text' only"
    return RequestError(f"{param}.type is {kind!r:.100}; this server reads {known}", param=f"{param}.type")


def _check_tool_calls(calls: Any, param: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise RequestError(f"{param} is {calls!r:.100}; it must be a list", param=param)
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not (isinstance(function, dict) and isinstance(function.get("name"), str)):
            raise RequestError(
                f"{param}[{i}].function.name is missing; a call names its function",
                param=f"{param}[{i}].function.name",
            )


def _check_results(messages: Sequence[dict[str, Any]]) -> None:
    """Raise RequestError for a tool's result without a matching call before it.

    A result without an id matches every call, and a call without an id matches every result. An id may have
    any JSON type.
    """
    called: set[str] = set()
    has_call = has_unnamed = False
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            has_call = True
            called.add(repr(call.get("id")))
            has_unnamed = has_unnamed or call.get("id") is None
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id")
        if not has_call:
            raise RequestError(
                f"messages[{i}] is a tool's result, and no message before it has tool_calls; send the call, too",
                param=f"messages[{i}].role",
            )
        if not (call_id is None or has_unnamed or repr(call_id) in called):
            raise RequestError(
                f"messages[{i}].tool_call_id is {call_id!r:.100}; it must be the id of a tool call before it",
                param=f"messages[{i}].tool_call_id",
            )


def _with_known_names(message: dict[str, Any], developer: bool) -> dict[str, Any]:
    """Return a message with the names that templates expect.

    Args:
        developer: whether the template has the role "developer"; if not, it is replaced by "system".
    """
    if message.get("reasoning") is not None and message.get("reasoning_content") is None:
        message = {**message, "reasoning_content": message["reasoning"]}
    if message["role"] == "developer" and not developer:
        message = {**message, "role": "system"}
    return message
