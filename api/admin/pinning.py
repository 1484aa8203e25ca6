"""Determines which tokens a pin request pins, and for how long.

For a conversation, every continuation starts with the pinned tokens. To find these tokens, the conversation
is rendered with several continuations, whose common prefix is then pinned.
"""

from __future__ import annotations

import math
import re
from typing import Any

from llmfw.api.chat.service import ChatService
from llmfw.api.schemas.admin import PinRequest
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.text.generation import Generator
from llmfw.core.base.errors import RequestError

DEFAULT_TTL_S = 3600.0
MAX_TTL_S = 365 * 24 * 3600.0

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_TTL = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])")
_FILLERS = ("0", "x y")
_NEXT_ROLE = {"user": "assistant"}
"""Maps the role of a message to the role of the next message, which is "user" after all other roles."""


def ttl_of(body: PinRequest) -> float:
    """Return the seconds for which a prefix stays pinned; raise RequestError if the time is not allowed."""
    if body.ttl is not None and body.ttl_s is not None:
        raise RequestError("ttl and ttl_s are both given; give one", param="ttl")
    if body.ttl is not None:
        param, seconds = "ttl", _read_ttl(body.ttl)
    else:
        param, seconds = "ttl_s", DEFAULT_TTL_S if body.ttl_s is None else body.ttl_s
    if not (math.isfinite(seconds) and 0 < seconds <= MAX_TTL_S):
        shown = getattr(body, param)
        raise RequestError(f"{param} is {shown!r}; it must be above 0, and at most a year", param=param)
    return seconds


def _read_ttl(text: str) -> float:
    found = _TTL.fullmatch(text.strip())
    if found is None:
        raise RequestError(
            f"ttl is {text[:100]!r}; it must be a number and a unit: '90s', '15m', '12h', '7d'", param="ttl"
        )
    return float(found[1]) * _SECONDS[found[2]]


def source_of(body: PinRequest) -> str:
    """Return which of the fields `prompt`, `messages` and `input_ids` contains the prefix.

    Raises:
        RequestError: none of them is set, or more than one.
    """
    given = [name for name in ("prompt", "messages", "input_ids") if getattr(body, name) is not None]
    if len(given) == 1:
        return given[0]
    problem = f"{' and '.join(given)} are given" if given else "none of them is given"
    param = given[-1] if given else "prompt"
    raise RequestError(f"a pin needs one of prompt, messages and input_ids: {problem}", param=param)


class PinnedTokens:
    """Converts the prefix in a pin request to tokens.

    Args:
        generator: generator with the tokenizer.
        chat: chat service that renders messages.
    """

    def __init__(self, generator: Generator, chat: ChatService) -> None:
        self._generator = generator
        self._chat = chat

    async def of(self, body: PinRequest) -> list[int]:
        """Return the tokens of the prefix in a pin request.

        Raises:
            RequestError: the request contains no prefix, several prefixes, or a prefix that no request can
                start with.
        """
        param = source_of(body)
        if body.messages is None:
            for name in ("tools", "chat_template_kwargs"):
                if getattr(body, name) is not None:
                    raise RequestError(
                        f"{name} goes with messages, and there are none; send messages, or leave it out",
                        param=name,
                    )
        if body.prompt is not None:
            tokens = await self._generator.encode(body.prompt)
        elif body.messages is not None:
            tokens = await self._of_messages(body, body.messages)
        else:
            tokens = list(body.input_ids or ())
        self._check(tokens, param)
        return tokens

    async def _of_messages(self, body: PinRequest, messages: list[dict[str, Any]]) -> list[int]:
        """Return the tokens that all conversations starting with these messages have in common."""
        if not messages:
            raise RequestError("messages is empty; it must have at least one message", param="messages")
        role = _NEXT_ROLE.get(str(messages[-1].get("role")), "user")
        goes_on = [
            await self._encode(body, [*messages, {"role": role, "content": text}]) for text in _FILLERS
        ]
        common = _common_prefix(*goes_on)
        try:
            whole = await self._encode(body, messages)
        except RequestError:  # some templates require a user message at the end
            return common
        return _common_prefix(common, whole)

    async def _encode(self, body: PinRequest, messages: list[dict[str, Any]]) -> list[int]:
        chat = ChatRequest(
            messages=messages,
            tools=body.tools,
            chat_template_kwargs=body.chat_template_kwargs,
            add_generation_prompt=False,
        )
        return await self._generator.encode(await self._chat.render(chat), add_special_tokens=False)

    def _check(self, tokens: list[int], param: str) -> None:
        info = self._generator.info
        if not tokens:
            problem = "chats that start with these messages share no token, by this model's chat template"
            raise RequestError(
                f"{param}: {problem}" if param == "messages" else f"{param} has no token", param=param
            )
        if len(tokens) >= info.max_model_len:
            raise RequestError(
                f"{param} has {len(tokens)} tokens; the longest sequence of this model has {info.max_model_len}, and no "
                "longer prefix is ever asked for",
                param=param,
            )
        wrong = next((token for token in tokens if not 0 <= token < info.vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"{param} has the token id {wrong}; this model's go from 0 to {info.vocab_size - 1}",
                param=param,
            )


def _common_prefix(first: list[int], second: list[int]) -> list[int]:
    pairs = zip(first, second, strict=False)
    size = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    return first[:size]
