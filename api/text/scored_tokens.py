"""Assigns tokens and their log probabilities to the pieces of an answer's text.

A token belongs to a piece of text if the piece contains some of the token's text. A token that is part of a
character belongs to the piece with that character. If a token's text is split, for example because a part of
it is held back, the token belongs to the piece with the start of its text. So the pieces together have each
token once, in order.

Parsers return text without its position, so this module searches for it in the text that they received.
`logprobs` converts the tokens to the entries that clients get.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from llmfw.core.base.request import TokenLogprob
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningParser, ToolParser

TokenBytes = Callable[[int], bytes]
"""Takes a token id; returns its bytes (`Tokenizer.token_bytes`)."""

LOWEST_LOGPROB = -9999.0  # JSON has no -infinity


class Likely(msgspec.Struct, frozen=True):
    """A candidate token for one position of the text.

    Attributes:
        bytes: the token's text in UTF-8; may be part of a character.
        logprob: natural logarithm of the token's probability.
    """

    token_id: int
    bytes: bytes
    logprob: float


class ScoredToken(msgspec.Struct, frozen=True):
    """A token of a text.

    Attributes:
        start: start of the token's text, in characters from the start of the whole text.
        bytes: the token's text in UTF-8; may be part of a character.
        logprob: log probability; None for the first token of a prompt.
        top: the most likely tokens at the token's position, the most likely first.
        given: the tokens that the request names, in its order, at the token's position.
    """

    start: int
    token_id: int
    bytes: bytes
    logprob: float | None
    top: tuple[Likely, ...] = ()
    given: tuple[Likely, ...] = ()


class ScoredContent(ContentDelta, frozen=True, tag="scored_content"):
    """More text of the answer, with its tokens."""

    tokens: tuple[ScoredToken, ...] = ()


def score(start: int, token_id: int, logprob: TokenLogprob | None, token_bytes: TokenBytes) -> ScoredToken:
    """Return a token with its log probabilities. `logprob` is None for the first token of a prompt."""
    if logprob is None:
        return ScoredToken(start, token_id, token_bytes(token_id), None)
    return ScoredToken(
        start,
        token_id,
        token_bytes(token_id),
        max(logprob.logprob, LOWEST_LOGPROB),
        _likely(logprob.top_ids, logprob.top_logprobs, token_bytes),
        _likely(logprob.given_ids, logprob.given_logprobs, token_bytes),
    )


def _likely(
    token_ids: Sequence[int], logprobs: Sequence[float], token_bytes: TokenBytes
) -> tuple[Likely, ...]:
    return tuple(
        Likely(token_id, token_bytes(token_id), max(logprob, LOWEST_LOGPROB))
        for token_id, logprob in zip(token_ids, logprobs, strict=True)
    )


class _Span(msgspec.Struct):
    """A piece of text with its tokens: one token, or the several tokens that together form a character.

    Attributes:
        start, end: characters from the start of the whole text; equal while the piece has no text.
    """

    start: int
    end: int
    tokens: list[ScoredToken]


class TokenSpans:
    """The tokens of one choice that are not assigned to a piece of the answer yet.

    `TextStream` adds each token, then reports each piece that the parsers returned: `content` assigns tokens
    to a piece of content; `reasoning` and `call` skip other pieces. It calls `end_event` after each event.

    Args:
        token_bytes: function that returns a token's bytes.
        reasoning, tools: parsers of the text, or None. Their markers are not content.

    Attributes:
        tokens: all tokens so far, including reasoning, calls and the end.
    """

    def __init__(
        self,
        token_bytes: TokenBytes,
        reasoning: ReasoningParser | None = None,
        tools: ToolParser | None = None,
    ) -> None:
        self.tokens: list[ScoredToken] = []
        self._token_bytes = token_bytes
        self._opening = reasoning.opening if reasoning else None
        self._call_end = tools.call_format.end.strip() if tools and tools.call_format else None
        self._marker = reasoning.closing if reasoning else None  # may stand before the next content
        self._spans: deque[_Span] = deque()
        self._text = ""  # received, but not yet found in a piece
        self._start = 0  # start of `_text`, in characters from the start of the whole text
        self._marked = reasoning is not None and reasoning.in_reasoning  # last piece was not content

    def add(self, token_id: int, logprob: TokenLogprob, text: str) -> None:
        """Add the next token, and the text that it completes."""
        token = self._score(token_id, logprob)
        if not self._spans or self._spans[-1].end > self._spans[-1].start:
            self._spans.append(_Span(token.start, token.start, []))
        self._spans[-1].tokens.append(token)
        self._spans[-1].end += len(text)
        self._text += text

    def complete(self, text: str) -> None:
        """Add the text of an incomplete character at the end, whose tokens were added without text."""
        if text and self._spans:
            self._spans[-1].end += len(text)
            self._text += text

    def add_end(self, token_id: int, logprob: TokenLogprob) -> None:
        """Add the token that ends the text. The token has no text."""
        token = self._score(token_id, logprob)
        self._spans.append(_Span(token.start, token.start, [token]))

    def content(self, text: str) -> ScoredContent:
        """Return the next piece of the answer's content, with its tokens."""
        at = self._find(text)
        begin, length = (
            (0, len(self._text)) if at < 0 else (at, len(text))
        )  # the parser changed the text: take all that it received
        self._marker, self._marked = None, False
        self._skip(begin)
        end = self._start + length
        tokens: list[ScoredToken] = []
        while self._spans and self._spans[0].start < min(end, self._spans[0].end):
            tokens += self._spans.popleft().tokens
        self._forget(length)
        return ScoredContent(text, tuple(tokens))

    def reasoning(self, text: str) -> None:
        """Skip the next piece, which is reasoning."""
        self._marked = True
        at = self._text.find(text)
        if at >= 0:
            self._skip(at + len(text))

    def call(self) -> None:
        """Record that the next piece is part of a tool call.

        The text of the piece is skipped later: by `end_event`, or when `content` takes the next content.
        """
        self._marked, self._marker = True, self._call_end

    def end_event(self, *, in_call: bool) -> None:
        """Record that all pieces of an event have been added.

        Args:
            in_call: whether the last piece was part of a tool call. If so, all text so far is skipped.
        """
        if in_call:
            self._skip(len(self._text))

    def rest(self) -> list[ScoredToken]:
        """Return the tokens that belong to no piece, such as the end token."""
        return [token for span in self._spans for token in span.tokens]

    def _score(self, token_id: int, logprob: TokenLogprob) -> ScoredToken:
        token = score(self._start + len(self._text), token_id, logprob, self._token_bytes)
        self.tokens.append(token)
        return token

    def _find(self, text: str) -> int:
        """Return the start of the next piece of the answer in the received text, or -1 if it is not there."""
        bare = self._text.lstrip()  # parsers drop white space next to markers
        if not self._marked and self._opening and not bare.startswith(self._opening):
            self._marker = None  # no reasoning at all
        if self._marker and (marker := self._text.find(self._marker)) >= 0:
            return self._text.find(text, marker + len(self._marker))
        if self._marker or not self._marked:
            at = 0 if self._text.startswith(text) else len(self._text) - len(bare)
            if self._text.startswith(text, at):
                return at
        # The parser has no known marker. Such parsers usually have returned all text that they received.
        return len(self._text) - len(text) if self._text.endswith(text) else self._text.find(text)

    def _skip(self, length: int) -> None:
        """Drop `length` characters of text, and the tokens that lie entirely in them."""
        end = self._start + length
        while self._spans and self._spans[0].start < self._spans[0].end <= end:
            self._spans.popleft()
        self._forget(length)

    def _forget(self, length: int) -> None:
        self._text = self._text[length:]
        self._start += length
