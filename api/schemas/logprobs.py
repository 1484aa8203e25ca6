"""Log probabilities in replies, in the forms of chat completions and of completions."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_TOP_LOGPROBS = 20

NumTop = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)]


class TopLogprob(msgspec.Struct):
    """One of the most likely tokens at a position. `bytes` may be only part of a character."""

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
    """Log probabilities of a chat's content, or of a chunk of it."""

    content: list[TokenEntry]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Log probabilities of a completion, or of a chunk of it. Each list has one item per token.

    `top_logprobs` maps the texts of the most likely tokens, and of the token itself, to log probabilities.
    `text_offset` is the start of a token's text, in characters from the start of the prompt.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
