"""Log probabilities in bodies: of chats, and in the older form of completions."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_TOP_LOGPROBS = 20

NumTop = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]


class TopLogprob(msgspec.Struct):
    """A token that might have stood at a place. `bytes` are those of its text, maybe of a part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenEntry(msgspec.Struct):
    """A token of a chat's content, and the most likely ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Of a chat's answer, or of a chunk of it."""

    content: list[TokenEntry]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Of a completion, or of a chunk of it: lists with one item for each token.

    `top_logprobs`: token text → log probability, of the most likely tokens and the token itself. `text_offset`: where
    a token's text begins, in characters from the beginning of prompt and text together.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
