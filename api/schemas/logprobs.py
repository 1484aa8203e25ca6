"""Log probabilities in bodies of chats, and in the older form of completions."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_TOP_LOGPROBS = 20

NumTop = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]


class TopLogprob(msgspec.Struct):
    """A likely token at a position. `bytes` are its text's bytes, perhaps only part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenEntry(msgspec.Struct):
    """A token of a chat's content, and the most likely tokens at its position."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Log probabilities of a chat's answer or of a chunk."""

    content: list[TokenEntry]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Log probabilities of a completion or of a chunk: lists with one item per token.

    `top_logprobs`: token text → log probability, of the most likely tokens and the token itself. `text_offset`: index
    of a token's first character in prompt and text together.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
