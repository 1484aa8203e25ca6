"""Converts text to token ids and back, at once or token by token.

Uses the `tokenizers` library. Independent of chats and requests.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

import tokenizers
from tokenizers.decoders import DecodeStream

from llmfw.core.base.errors import EngineError

from .token_bytes import TokenBytes

P = ParamSpec("P")
T = TypeVar("T")

LONG_TEXT = 2000  # characters; longer texts are encoded outside the event loop
CONTEXT_TOKENS = 8  # last tokens of the prompt, because they may change the text of the first new token
MAX_HELD_TOKENS = 16  # tokens held back for the rest of a character; UTF-8 needs at most three


def panics_are_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that a panic in the Rust code of `tokenizers` becomes an EngineError.

    The library raises a panic as a `BaseException`, which handlers of `Exception` would not catch.
    """

    @functools.wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise EngineError(f"the model's tokenizer cannot process this text: {error}") from None

    return called


class Tokenizer:
    """A model's tokenizer.

    Attributes:
        eos_token_ids: tokens that end the model's output.
        special_tokens: special tokens by name: `bos_token`, `eos_token`, ….
        chat_template: text of the model's own template; "" if there is none.
        template_file: file that the template was read from, for error messages; "" if there is none.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_token_ids: tuple[int, ...] = (),
        special_tokens: Mapping[str, str] | None = None,
        chat_template: str = "",
        template_file: str = "",
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        vocabulary = backend.get_vocab()
        self._longest = max(map(len, vocabulary), default=1)
        self._num_ids = max(vocabulary.values(), default=-1) + 1
        self._bytes = TokenBytes(backend)
        self.eos_token_ids = eos_token_ids
        self.special_tokens = dict(special_tokens or {})
        self.chat_template = chat_template
        self.template_file = template_file

    @property
    def num_ids(self) -> int:
        """The largest token id plus one."""
        return self._num_ids

    def tokens_from(self, first: int) -> dict[str, int]:
        """Return the ids of all tokens from id `first` on, by name, in ascending order."""
        if first >= self._num_ids:
            return {}
        found = [(number, name) for name, number in self._backend.get_vocab().items() if number >= first]
        return {name: number for number, name in sorted(found)}

    @panics_are_errors
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text.

        Args:
            add_special_tokens: whether to add the tokens that the tokenizer puts around a text (such as a
                beginning-of-sequence token). A rendered chat already has them.
        """
        if len(text) <= LONG_TEXT:
            return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
        # Only the batch call releases the interpreter lock, so that other threads run meanwhile.
        return list(self._backend.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids)

    @panics_are_errors
    def encode_all(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return the token ids of each text, as `encode` does.

        Uses only the calling thread, and releases the interpreter lock.
        """
        # A single call for all texts would use all cores.
        return [
            list(self._backend.encode_batch([text], add_special_tokens=add_special_tokens)[0].ids)
            for text in texts
        ]

    @panics_are_errors
    def encode_pair(self, given: str | tuple[str, str]) -> tuple[list[int], list[int]]:
        """Return the token ids of a text or of a pair of texts, with special tokens, and each token's type.

        The tokenizer's own template defines the types: mostly 0, and 1 in the second text of a pair.
        """
        encoding = self._backend.encode_batch([given], add_special_tokens=True)[0]
        return list(encoding.ids), list(encoding.type_ids)

    @property
    def longest_token(self) -> int:
        """Length of the vocabulary's longest token in characters."""
        return self._longest

    def fewest_tokens(self, text: str) -> int:
        """Return a lower bound on the number of tokens in a text, from its length and the longest token's.

        Does not encode the text.
        """
        return len(text) // self._longest

    async def encode_aside(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text, as `encode` does.

        Encodes a text of more than LONG_TEXT characters in a thread, so that it does not block the event
        loop.
        """
        if len(text) <= LONG_TEXT:
            return self.encode(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(self.encode, text, add_special_tokens=add_special_tokens)

    def marker(self, text: str) -> tuple[int, ...] | None:
        """Return a text's token ids if they are the same in any context; else None.

        The ids are the same in any context if the first and the last token are added tokens (see
        `added_tokens`).
        """
        added = self.added_tokens().values()
        ids = self.encode(text, add_special_tokens=False)
        return tuple(ids) if ids and ids[0] in added and ids[-1] in added else None

    async def encode_all_aside(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, as `encode` does.

        Encodes the texts on several cores, and does not block the event loop.
        """
        encode = panics_are_errors(self._backend.encode_batch)
        encodings = await asyncio.to_thread(encode, list(texts))
        return [list(encoding.ids) for encoding in encodings]

    @panics_are_errors
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        return str(self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens))

    @panics_are_errors
    def decode_all(self, lists: Sequence[Sequence[int]], *, skip_special_tokens: bool = True) -> list[str]:
        """Return the text of each list of token ids, as `decode` does.

        Uses only the calling thread, and releases the interpreter lock.
        """
        return [
            str(self._backend.decode_batch([each], skip_special_tokens=skip_special_tokens)[0])
            for each in lists
        ]

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token, which may be part of a character.

        For a special token, return its name.
        """
        return self._bytes.of(token_id)

    def token_id(self, piece: str) -> int | None:
        """Return the id of a token by its name in the vocabulary; None if the name is unknown."""
        found: int | None = self._backend.token_to_id(piece)
        return found

    def token_names(self, token_ids: Sequence[int]) -> list[str]:
        """Return each token's name in the vocabulary, such as "Ġthe"; "" for an id that has none."""
        return [self._backend.id_to_token(token_id) or "" for token_id in token_ids]

    def to_json(self) -> str:
        """Return the tokenizer as the text of a tokenizer.json, for libraries that read this format."""
        return str(self._backend.to_str())

    def added_tokens(self) -> dict[str, int]:
        """Return the ids of the added tokens, such as `<tool_call>`, by text.

        An added token is in the vocabulary as a whole, in addition to the trained tokens. It may be special
        or not.
        """
        return {token.content: id for id, token in self._backend.get_added_tokens_decoder().items()}

    def detokenizer(
        self, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> IncrementalDetokenizer:
        """Return a detokenizer for the tokens that follow `prompt`."""
        return IncrementalDetokenizer(self._backend, prompt[-CONTEXT_TOKENS:], skip_special_tokens)


class IncrementalDetokenizer:
    """Converts token ids to text as they arrive. Holds back an incomplete character until `finish`.

    Args:
        prompt: tokens before the first token that is fed; their text is not returned.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, prompt: Sequence[int], skip_special_tokens: bool
    ) -> None:
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        self._held: list[int] = []
        ends_whole = bool(prompt) and not backend.decode(prompt, skip_special_tokens).endswith("\ufffd")
        self._stream = DecodeStream(list(prompt) if ends_whole else None, skip_special_tokens)

    def feed(self, token_ids: Sequence[int]) -> str:
        """Add tokens; return the text that is certain by now."""
        if len(token_ids) == 1:
            return self._step(token_ids[0])
        return "".join(map(self._step, token_ids))

    def finish(self) -> str:
        """Return the rest of the text: U+FFFD for each incomplete or invalid character at the end, as in
        `Tokenizer.decode`."""
        return self._restart() if self._held else ""

    def _step(self, token_id: int) -> str:
        try:
            text = self._stream.step(self._backend, token_id)
        except Exception:  # noqa: BLE001 - the library raises its own class if a token changes earlier text
            return self._restart(token_id)
        if text is not None:
            if self._held:
                self._held.clear()
            return str(text)
        self._held.append(token_id)
        return self._restart() if len(self._held) >= MAX_HELD_TOKENS else ""

    @panics_are_errors
    def _restart(self, *token_ids: int) -> str:
        """Return the text of the held tokens and of `token_ids`, and start a new stream.

        Called if the held tokens can no longer become a character.
        """
        text = self._backend.decode([*self._held, *token_ids], self._skip_special_tokens)
        self._held.clear()
        self._stream = DecodeStream(None, self._skip_special_tokens)
        return str(text)
