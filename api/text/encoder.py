"""Encodes text to token ids and decodes token ids to text. Long texts are processed in threads.

Encoding a text takes about a hundred times the memory of the text. A text that may be too long for the
context is therefore first encoded in slices to count its tokens, and refused as soon as the count exceeds
the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import TypeVar

from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.interfaces.tokenizer import LONG_TEXT, Tokenizer

from .threads import TextThreads

MAX_TOKENS = 2**20
"""Maximum number of tokens of all prompts of a request together, unless the context is longer."""

CHARACTERS_A_TOKEN = 4
"""Characters per token of the context. If a text has more, its tokens are first counted in slices."""

SLICE = 2**15  # characters
GROUP = 2**16  # characters of the texts that one call encodes; other requests take turns between calls

SizedT = TypeVar("SizedT", bound=Sized)


class PromptEncoder:
    """Encodes and decodes the texts of requests.

    Args:
        tokenizer: tokenizer of the model.
        context: function that returns the model's context length in tokens.
        threads: threads that encode and decode long texts.
        limit_name: name of `context`, for errors.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        context: Callable[[], int],
        threads: TextThreads,
        limit_name: str = "this model's maximum context length",
    ) -> None:
        self._tokenizer = tokenizer
        self._context = context
        self._threads = threads
        self._limit_name = limit_name

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of all prompts of a request together."""
        return max(MAX_TOKENS, self._context())

    async def encode(
        self, text: str, *, add_special_tokens: bool = True, param: str | None = None
    ) -> list[int]:
        """Return a text's token ids. Refuses only texts that certainly exceed the context.

        Args:
            param: request field of the text, for errors.

        Raises:
            ContextLengthError: the text cannot fit into the context.
        """
        await self._check(text, param)
        if len(text) <= LONG_TEXT:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return await self._threads.run(len(text), self._encode, text, add_special_tokens)

    async def encode_all(
        self, texts: Sequence[str], param: str, *, add_special_tokens: bool = True
    ) -> list[list[int]]:
        """Return the token ids of each text of a request.

        Args:
            param: request field of the list, for errors.

        Raises:
            ContextLengthError: a text cannot fit into the context.
            RequestError: the texts together have more than `max_tokens` tokens.
        """
        found: list[list[int]] = []
        count = 0
        for i, text in enumerate(texts):
            await self._check(text, f"{param}[{i}]")
        for group in _groups(texts):
            size = sum(map(len, group))
            if size <= LONG_TEXT and len(group) == len(texts):
                encoded = self._tokenizer.encode_all(group, add_special_tokens=add_special_tokens)
            else:
                encoded = await self._threads.run(size, self._encode_all, group, add_special_tokens)
            found += encoded
            count += sum(map(len, encoded))
            self.check_together(count, param)
        return found

    async def decode_all(self, lists: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        """Return the text of each list of tokens."""
        if sum(map(len, lists)) <= LONG_TEXT:
            return self._tokenizer.decode_all(lists, skip_special_tokens=skip_special_tokens)
        found: list[str] = []
        for group in _groups(lists):
            size = sum(map(len, group))
            found += await self._threads.run(size, self._decode_all, group, skip_special_tokens)
        return found

    def check_together(self, count: int, param: str) -> None:
        """Raise RequestError if all prompts of a request have too many tokens together."""
        if count > self.max_tokens:
            raise RequestError(
                f"{param} has more than {self.max_tokens} tokens in all of its prompts together; "
                "send several requests",
                param=param,
            )

    def check_characters(self, count: int, param: str | None = None) -> None:
        """Raise ContextLengthError if no text of `count` characters fits into the context."""
        self._check_least(count, self._context(), param)

    def _check_least(self, count: int, limit: int, param: str | None) -> None:
        least = count // self._tokenizer.longest_token
        if least > limit:
            raise ContextLengthError(
                f"{self._limit_name} is {limit} tokens; the prompt's {count} characters are "
                f"{least} tokens at least",
                param=param,
            )

    async def _check(self, text: str, param: str | None) -> None:
        """Raise ContextLengthError if a text cannot fit into the context.

        Checks the number of characters first. Counts the tokens only if the text has many characters.
        """
        limit = self._context()
        self._check_least(len(text), limit, param)
        if len(text) <= max(CHARACTERS_A_TOKEN * limit, LONG_TEXT):
            return
        count = 0
        # Slices split words, which changes the count by about a token for each slice.
        tolerance = limit // 16 + 16 * (len(text) // SLICE + 1)
        for start in range(0, len(text), SLICE):
            piece = text[start : start + SLICE]
            count += await self._threads.run(SLICE, self._count, piece)
            if count > limit + tolerance:
                raise ContextLengthError(
                    f"{self._limit_name} is {limit} tokens; the first {start + len(piece)} of the "
                    f"prompt's {len(text)} characters are about {count} tokens; send a shorter prompt",
                    param=param,
                )

    def _count(self, piece: str) -> int:
        return len(self._tokenizer.encode(piece, add_special_tokens=False))

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _encode_all(self, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
        return self._tokenizer.encode_all(texts, add_special_tokens=add_special_tokens)

    def _decode_all(self, lists: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return self._tokenizer.decode_all(lists, skip_special_tokens=skip_special_tokens)


def _groups(texts: Sequence[SizedT]) -> Iterator[list[SizedT]]:
    """Yield the texts or token lists in groups. A group ends when it has GROUP characters or tokens."""
    group: list[SizedT] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group
