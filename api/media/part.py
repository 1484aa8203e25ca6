"""Image parts of messages, which chats, responses and Anthropic's messages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from llmfw.core.base.errors import RequestError

Message = dict[str, Any]

TEXT_ONLY = "this server reads text only"

_KINDS = ("image_url", "input_image")
"""Types of parts of a chat that are images: OpenAI's, and the one of responses, which clients send, too."""
_KEYS = frozenset({"type", "image_url", "file_id", "detail"})
_DETAILS = ("auto", "low", "high", "original")


class ImagePart(msgspec.Struct, frozen=True):
    """An image in the list of parts of a message's content, before it is read.

    Attributes:
        kind: type of the part or block in the client's request.
        param: path of the image in the client's request, as in `messages[1].content[0].image_url`.
        url: URL of the image; None: the client gives the image in another way.
        base64: data of the image in base64; None: the client gives the image in another way.
        file_id: id of an uploaded file; None: the client gives the image in another way.
        detail: how exactly the model is to look at it, for the chat template; None: the client does not say.
    """

    kind: str
    param: str
    url: str | None = None
    base64: str | None = None
    file_id: str | None = None
    detail: str | None = None


def refuse_image(part: ImagePart) -> NoReturn:
    """Raise RequestError for an image, if the served model reads text only."""
    param = f"{part.param.rpartition('.')[0]}.type"
    raise RequestError(f"{param} is {part.kind!r}; {TEXT_ONLY}", param=param)


def with_image_parts(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a chat's messages with an `ImagePart` in place of each image. Other parts stay as they are.

    Raises:
        RequestError: an image is malformed; names the field.
    """
    return replaced(messages, _of_chat)


def replaced(messages: Sequence[Message], replace: Callable[[Any, str], Any]) -> Sequence[Message]:
    """Return messages in which the parts of contents are replaced; the same object if there are no lists of parts.

    Args:
        replace: function that takes a part and its path, and returns the new part.
    """
    if not any(isinstance(message.get("content"), list) for message in messages):
        return messages
    found: list[Message] = []
    for i, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            parts = [replace(part, f"messages[{i}].content[{j}]") for j, part in enumerate(content)]
            message = {**message, "content": parts}
        found.append(message)
    return found


def _of_chat(part: Any, param: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _KINDS:
        return part
    return image_part(part, param)


def image_part(part: dict[str, Any], param: str) -> ImagePart:
    """Return the image of a content part in OpenAI's format.

    The part has `image_url` (a text, or an object with `url` and `detail`) or `file_id`.

    Raises:
        RequestError: the part is malformed; the error names the field.
    """
    given, detail = part.get("image_url"), part.get("detail")
    if isinstance(given, dict):
        detail = given.get("detail", detail)
        given = given.get("url")
        if given is None:
            raise RequestError(
                f"{param}.image_url.url is missing; it is required", param=f"{param}.image_url.url"
            )
    if unknown := sorted(part.keys() - _KEYS):
        raise RequestError(
            f"{param}.{unknown[0]:.100} is no field of an image; leave it out", param=f"{param}.{unknown[0]}"
        )
    if detail is not None and detail not in _DETAILS:
        where = f"{param}.image_url.detail" if isinstance(part.get("image_url"), dict) else f"{param}.detail"
        raise RequestError(
            f"{where} is {detail!r:.100}; it must be one of {', '.join(_DETAILS)}", param=where
        )
    file_id = part.get("file_id")
    if (given is None) == (file_id is None):
        problem = "missing; give it or file_id" if given is None else "given together with file_id; give one"
        raise RequestError(f"{param}.image_url is {problem}", param=f"{param}.image_url")
    name = "file_id" if given is None else "image_url"
    value = file_id if given is None else given
    if not (isinstance(value, str) and value):
        raise RequestError(f"{param}.{name} is {value!r:.100}; it must be a string", param=f"{param}.{name}")
    return ImagePart(
        kind=part["type"],
        param=f"{param}.{name}",
        url=given,
        file_id=file_id,
        detail=detail,
    )
