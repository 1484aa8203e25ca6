"""Checks and completes the items of a conversation, and converts them to chat messages.

An item is a JSON object of OpenAI's Responses API: a message, a function call, its output, or reasoning.
The caller must first replace references to stored items with the items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from llmfw.api.media.part import ImagePart, image_part
from llmfw.core.base.errors import RequestError

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
REFERENCE = "item_reference"
IMAGE = "input_image"
"""Type of a content part that is an image."""


def check_items(
    given: str | Sequence[Item],
    name: Callable[[int, str], str],
    taken: Collection[str] = (),
    *,
    images: bool = False,
) -> list[Item]:
    """Check items, and return them in the form that is stored and listed.

    Returned items have a type, an id, a status, and content as a list of parts.

    Args:
        given: items, or the text of a user message.
        name: function that returns an id for an item without one, from the item's index and the id prefix of
            its type.
        taken: ids of earlier items. An item with such an id gets a new one, because lists are paged by id.
        images: whether the model reads images.

    Raises:
        RequestError: an item is invalid; names the field.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not given:
        raise RequestError("input is empty; at least one item is needed", param="input")
    items: list[Item] = []
    seen = set(taken)
    for i, item in enumerate(given):
        items.append(_checked(item, f"input[{i}]", partial(name, i), seen, images))
        seen.add(items[-1]["id"])
    return items


def kind_of(item: Item) -> Any:
    """Return an item's type. Messages and references may omit it; an item with only an id is a reference."""
    kind = item.get("type")
    if kind is None:
        return REFERENCE if item.keys() <= {"id", "type"} and "id" in item else "message"
    return kind


def check_calls(items: Sequence[Item], num_old: int) -> None:
    """Raise RequestError if a function call's output has no matching call before it.

    Args:
        num_old: number of items at the start that are from earlier turns.
    """
    called = set()
    for i, item in enumerate(items):
        if item["type"] == "function_call":
            called.add(item["call_id"])
        elif item["type"] == "function_call_output" and item["call_id"] not in called:
            _wrong(
                f"input[{i - num_old}].call_id", item["call_id"], "the call_id of a function_call before it"
            )


def messages_of(items: Sequence[Item], params: Mapping[str, str] = {}) -> list[dict[str, Any]]:
    """Return a conversation's items as chat messages.

    The reasoning, text and calls of one turn of the model become one message.

    Args:
        params: id of each item of the request → its path there, for errors about images. Other items are of earlier
            turns.
    """
    messages: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for item in items:
        kind, param = item["type"], params.get(item["id"])
        if kind == "function_call_output":
            output = _content(item["output"], param and f"{param}.output")
            tool = {"role": "tool", "tool_call_id": item["call_id"], "content": output}
            messages.append(tool | ({"name": names[item["call_id"]]} if item["call_id"] in names else {}))
        elif kind == "message" and item["role"] != "assistant":
            content = _content(item["content"], param and f"{param}.content")
            messages.append({"role": item["role"], "content": content})
        else:
            _add_to_answer(messages, item)
        if kind == "function_call":
            names[item["call_id"]] = item["name"]
    return messages


def _add_to_answer(messages: list[dict[str, Any]], item: Item) -> None:
    """Add an item of the model to its last message, or to a new message.

    A message holds reasoning, text and calls in this order. An item that breaks the order starts a new
    message.
    """
    kind = item["type"]
    taken = {
        "reasoning": ("reasoning_content", "content", "tool_calls"),
        "message": ("content", "tool_calls"),
    }
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if last is None or any(last.get(key) is not None for key in taken.get(kind, ())):
        last = {"role": "assistant", "content": None}
        messages.append(last)
    if kind == "reasoning":
        last["reasoning_content"] = _reasoning_text(item) or None
    elif kind == "message":
        last["content"] = _content(item["content"], None)
    else:
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        last.setdefault("tool_calls", []).append(call)


def _content(parts: str | Sequence[Item], param: str | None) -> str | list[Any]:
    """Convert content parts to the form of chat messages: a text, or a list of texts and images.

    Args:
        param: path of the parts in the request; None: they are of an earlier turn.
    """
    if isinstance(parts, str):
        return parts
    found = [_chat_part(part, param and f"{param}[{i}]") for i, part in enumerate(parts)]
    if len(found) == 1 and isinstance(found[0], dict):
        return str(found[0]["text"])
    return found


def _chat_part(part: Item, param: str | None) -> dict[str, str] | ImagePart:
    if part["type"] != IMAGE:
        return {"type": "text", "text": str(part.get("text", part.get("refusal")))}
    found = image_part(part, param or "")
    return found if param else msgspec.structs.replace(found, param="previous_response_id")


def _reasoning_text(item: Item) -> str:
    parts = item.get("content") or item["summary"]
    return "\n".join(part["text"] for part in parts)


def _checked(item: Item, param: str, name: Callable[[str], str], seen: Collection[str], images: bool) -> Item:
    kind = kind_of(item)
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None:
        _wrong(f"{param}.type", kind, f"one of {', '.join(sorted(_CHECKS))}, {REFERENCE}")
    checked, prefix = check(item, param, images)
    id, status = item.get("id"), item.get("status")
    if id is not None and not (isinstance(id, str) and id):
        _wrong(f"{param}.id", id, "a string")
    if status not in (None, "in_progress", "completed", "incomplete"):
        _wrong(f"{param}.status", status, "in_progress, completed or incomplete")
    own = name(prefix) if id is None or id in seen else id
    return {"id": own, "type": kind, "status": status or "completed", **checked}


def _check_message(item: Item, param: str, images: bool) -> tuple[Item, str]:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        _wrong(f"{param}.role", role, f"one of {', '.join(ROLES)}")
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        content = [{"type": kind, "text": content}]
    if not isinstance(content, list):
        _wrong(f"{param}.content", content, "a string or a list of parts")
    parts = [_check_part(part, f"{param}.content[{i}]", role, images) for i, part in enumerate(content)]
    return {"role": role, "content": parts}, "msg"


def _check_part(part: Any, param: str, role: str, images: bool) -> Item:
    known = ("output_text", "refusal") if role == "assistant" else ("input_text",)
    kind = part.get("type") if isinstance(part, dict) else None
    if images and role != "assistant":
        known = (*known, IMAGE)
    if kind == IMAGE and kind in known:
        return _checked_image(part, param)
    if kind not in ("input_text", *known):
        only = "text and images" if images else "text"
        _wrong(f"{param}.type", kind, f"{' or '.join(known)}: this server reads {only} only")
    key = "refusal" if kind == "refusal" else "text"
    text = _text(part, key, param)
    if role == "assistant" and kind != "refusal":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, key: text}


def _checked_image(part: Item, param: str) -> Item:
    """Return an image in the form that is stored, with all keys of OpenAI's API."""
    image = image_part(part, param)
    return {"type": IMAGE, "image_url": image.url, "file_id": image.file_id, "detail": image.detail or "auto"}


def _check_call(item: Item, param: str, images: bool) -> tuple[Item, str]:
    return {key: _text(item, key, param) for key in ("call_id", "name", "arguments")}, "fc"


def _check_output(item: Item, param: str, images: bool) -> tuple[Item, str]:
    call_id, output = _text(item, "call_id", param), item.get("output")
    if isinstance(output, list):
        output = [_check_part(part, f"{param}.output[{i}]", "tool", images) for i, part in enumerate(output)]
    elif not isinstance(output, str):
        _wrong(f"{param}.output", output, "a string or a list of parts")
    return {"call_id": call_id, "output": output}, "fco"


def _check_reasoning(item: Item, param: str, images: bool) -> tuple[Item, str]:
    texts: dict[str, list[Item]] = {}
    for key, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        given = item.get(key)
        parts = given if given is not None else []
        if not isinstance(parts, list):
            _wrong(f"{param}.{key}", parts, "a list of parts")
        texts[key] = [
            {"type": kind, "text": _text(part, "text", f"{param}.{key}[{i}]")} for i, part in enumerate(parts)
        ]
    if item.get("encrypted_content") is not None and not texts["content"]:
        _wrong(
            f"{param}.encrypted_content",
            item["encrypted_content"],
            "left out: this server reads content only",
        )
    return texts, "rs"


def _text(item: Any, key: str, param: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, str):
        _wrong(f"{param}.{key}", value, "a string")
    return value


def _wrong(param: str, value: Any, expected: str) -> NoReturn:
    raise RequestError(f"{param} is {value!r:.100}; it must be {expected}", param=param)


_CHECKS: dict[Any, Callable[[Item, str, bool], tuple[Item, str]]] = {
    "message": _check_message,
    "function_call": _check_call,
    "function_call_output": _check_output,
    "reasoning": _check_reasoning,
}
