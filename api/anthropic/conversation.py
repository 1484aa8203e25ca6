"""Converts Anthropic's system prompt and messages to chat messages.

Anthropic's messages are lists of blocks. Chat messages have separate fields for tool calls, thinking and
text, and a message of their own for each tool result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from llmfw.api.media.part import TEXT_ONLY, ImagePart
from llmfw.core.base.errors import RequestError

from .fields import Fields
from .image import image_of

Message = dict[str, Any]
Piece = str | ImagePart
IMAGE = "image"
ROLES = ("user", "assistant", "system")


class Conversation:
    """Builds chat messages from Anthropic's messages, one at a time.

    Args:
        ignored: set that receives the paths of keys without effect.
        images: whether the model reads images.
    """

    def __init__(self, ignored: set[str], *, images: bool = False) -> None:
        self._images = images
        self._turns: list[Message] = []  # fields that adjacent messages extend are lists of pieces
        self._ignored = ignored
        self._called: set[str] = set()  # ids of the tool calls so far

    def messages(self) -> list[Message]:
        """Return the messages in the format of OpenAI's API."""
        return [_joined(turn) for turn in self._turns]

    def add_system(self, content: str | Sequence[Any], param: str = "system") -> None:
        """Add the system prompt; raise RequestError, which names the field, if it is invalid."""
        texts = [content] if isinstance(content, str) else self._texts(content, param)
        if any(texts):
            self._add({"role": "system", "content": texts})

    def add(self, message: Any, param: str) -> None:
        """Add a message of one or more blocks.

        Args:
            param: path of the message in the request, for errors.

        Raises:
            RequestError: the message is invalid; names the field.
        """
        fields = Fields(message, param, self._ignored)
        role, content = fields.raw("role"), fields.raw("content")
        if role not in ROLES:
            fields.refuse("role", role, f"one of {', '.join(ROLES)}")
        if not isinstance(content, str | list):
            fields.refuse("content", content, "a string or a list of blocks")
        fields.close()
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role == "system":
            self.add_system(content, f"{param}.content")
        for i, block in enumerate(blocks if role != "system" else ()):
            self._add_block(role, Fields(block, f"{param}.content[{i}]", self._ignored))

    def _add_block(self, role: str, block: Fields) -> None:
        kind = block.raw("type")
        readers = _READERS[role]
        known = [name for name in readers if name != IMAGE or self._images]
        if not isinstance(kind, str) or kind not in known:
            why = "" if kind != IMAGE or role != "user" else f": {TEXT_ONLY}"
            block.refuse("type", kind, f"one of {', '.join(known)} in a message of the {role}{why}")
        self._add(readers[kind](self, block))
        block.close()

    def _user_text(self, block: Fields) -> Message:
        return {"role": "user", "content": [block.take("text", str, "a string")]}

    def _image(self, block: Fields) -> Message:
        return {"role": "user", "content": [image_of(block, self._ignored)]}

    def _assistant_text(self, block: Fields) -> Message:
        return {"role": "assistant", "content": [block.take("text", str, "a string")]}

    def _thinking(self, block: Fields) -> Message:
        block.raw("signature")  # ignored, because this server does not sign thinking
        return {"role": "assistant", "reasoning_content": [block.take("thinking", str, "a string")]}

    def _tool_use(self, block: Fields) -> Message:
        arguments = msgspec.json.encode(block.take("input", dict, "an object")).decode()
        function = {"name": block.take("name", str, "the tool's name"), "arguments": arguments}
        call_id = block.take("id", str, "the call's id")
        self._called.add(call_id)
        call = {"id": call_id, "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}

    def _tool_result(self, block: Fields) -> Message:
        call_id = block.take("tool_use_id", str, "the id of a tool_use block")
        if call_id not in self._called:
            block.refuse("tool_use_id", call_id, "the id of a tool_use block in a message before it")
        content = block.raw("content")
        if not isinstance(content, str | list | None):
            block.refuse("content", content, "a string or a list of blocks")
        if isinstance(content, list):
            content = _parts(self._texts(content, f"{block.param}.content", images=self._images))
        return {"role": "tool", "tool_call_id": call_id, "content": content or ""}

    def _texts(self, blocks: Sequence[Any], param: str, *, images: bool = False) -> list[Piece]:
        """Return the texts of blocks; raise RequestError if a block is not a text.

        Args:
            images: whether blocks may be images, too.
        """
        texts: list[Piece] = []
        for i, value in enumerate(blocks):
            block = Fields(value, f"{param}[{i}]", self._ignored)
            kind = block.raw("type")
            if images and kind == IMAGE:
                texts.append(image_of(block, self._ignored))
                block.close()
                continue
            if kind != "text":
                block.refuse("type", kind, "'text' or 'image'" if images else f"'text': {TEXT_ONLY}")
            texts.append(block.take("text", str, "a string"))
            block.close()
        return texts

    def _add(self, new: Message) -> None:
        """Add a message, or extend the last one if it has the same role. Tool results are never merged."""
        last = self._turns[-1] if self._turns else None
        if last is None or last["role"] != new["role"] or new["role"] == "tool":
            self._turns.append(new)
            return
        for key in new.keys() - {"role"}:
            last.setdefault(key, []).extend(new[key])


_READERS: dict[str, dict[str, Any]] = {
    "user": {
        "text": Conversation._user_text,
        IMAGE: Conversation._image,
        "tool_result": Conversation._tool_result,
    },
    "assistant": {
        "text": Conversation._assistant_text,
        "thinking": Conversation._thinking,
        "tool_use": Conversation._tool_use,
    },
}


def conversation_of(
    system: str | Sequence[Any] | None, messages: Sequence[Any], ignored: set[str], *, images: bool = False
) -> list[Message]:
    """Return Anthropic's system prompt and messages as chat messages.

    Args:
        ignored: set that receives the paths of keys without effect.
        images: whether the model reads images.

    Raises:
        RequestError: a message is invalid; names the field.
    """
    if not messages:
        raise RequestError("messages is empty; at least one is needed", param="messages")
    conversation = Conversation(ignored, images=images)
    if system is not None:
        conversation.add_system(system)
    for i, message in enumerate(messages):
        conversation.add(message, f"messages[{i}]")
    found = conversation.messages()
    if not found:
        raise RequestError("messages have no content; some text is needed", param="messages")
    return found


def _parts(pieces: Sequence[Piece]) -> Any:
    """Return texts and images as the content of a chat message: one text as a string, else a list of parts."""
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return pieces[0]
    return [{"type": "text", "text": piece} if isinstance(piece, str) else piece for piece in pieces]


def _joined(turn: Message) -> Message:
    """Return a turn in the format of chat messages.

    For the assistant, joins the texts in `content` and those in `reasoning_content`. Turns of tools stay
    unchanged. For other roles, converts `content` (see `_parts`).
    """
    if turn["role"] == "assistant":
        texts: Message = {key: "".join(turn[key]) for key in ("content", "reasoning_content") if key in turn}
        return {**turn, **texts}
    if turn["role"] == "tool":
        return turn
    return {**turn, "content": _parts(turn["content"])}
