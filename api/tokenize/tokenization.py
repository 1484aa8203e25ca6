"""Converts text to token ids and back, exactly as for prompts. Does not depend on HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, cast

from msgspec import UNSET

from llmfw.api.chat.service import ChatService
from llmfw.api.completions.prompts import MAX_PROMPTS
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.tokenize import (
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
)
from llmfw.api.text.encoder import CHARACTERS_A_TOKEN
from llmfw.api.text.generation import Generator
from llmfw.api.text.terms import key_name, tenant_of
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.interfaces.tokenizer import LONG_TEXT

MAX_NAMED = 5  # number of wrong token ids that an error lists


MAX_DECODED = 2**17
"""Maximum number of token ids in all lists of a /detokenize request together. Decoding a million takes a
second.

If the limit of a single list is larger, that limit applies instead.
"""


class TokenizationService:
    """Tokenizes prompts and chats, and converts tokens to text.

    Args:
        generator: generator with the tokenizer.
        chat: chat service that renders messages, so that the tokens equal those of a chat request.
    """

    def __init__(self, generator: Generator, chat: ChatService) -> None:
        self._generator = generator
        self._tokenizer = generator.tokenizer
        self._chat = chat

    def info(self) -> TokenizerInfo:
        """Return the tokenizer's special tokens and its own chat template."""
        names = TokenizerInfo.__struct_fields__
        tokens = {name: text for name, text in self._tokenizer.special_tokens.items() if name in names}
        return TokenizerInfo(**tokens, chat_template=self._tokenizer.chat_template or None)

    async def tokenize(self, body: TokenizeRequest) -> Tokenized:
        """Return the token ids of a request's prompt, prompts or messages.

        Raises:
            RequestError: a field is wrong; the error names it.
        """
        await self._generator.names.find(body.model, key_name.get())
        self._generator.check(body.model, None)
        if (body.prompt is None) == (body.messages is None):
            problem = "both missing; one of them is needed" if body.prompt is None else "both given; give one"
            raise RequestError(f"prompt and messages are {problem}", param="prompt")
        # A rendered chat contains its special tokens already.
        special = body.messages is None if body.add_special_tokens is None else body.add_special_tokens
        texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        if texts is None and special is False and self._chat.reads_images:
            return await self._tokenized(body, [await self._chat.tokens(_chat_of(body), tenant_of())])
        if texts is None:
            texts = [await self._chat.render(_chat_of(body))]
        if len(texts) > MAX_PROMPTS:
            raise RequestError(
                f"prompt holds {len(texts)} prompts; at most {MAX_PROMPTS} are allowed", param="prompt"
            )
        if len(texts) == 1:
            found = [await self._generator.encode(texts[0], add_special_tokens=special)]
        else:
            found = await self._generator.texts.encode_all(texts, "prompt", add_special_tokens=special)
        return await self._tokenized(body, found)

    async def _tokenized(self, body: TokenizeRequest, found: Sequence[Tokens]) -> Tokenized:
        names = await self._names(found) if body.return_token_strs else None
        one = not isinstance(body.prompt, list)
        return Tokenized(
            tokens=[*found[0]] if one else [*found],
            count=len(found[0]) if one else [len(tokens) for tokens in found],
            max_model_len=self._generator.info.max_model_len,
            token_strs=UNSET if names is None else [*names[0]] if one else [*names],
        )

    async def detokenize(self, body: DetokenizeRequest) -> Detokenized:
        """Return the text of a request's tokens.

        Raises:
            RequestError: the model does not have a token id, or a field is wrong; the error names it.
        """
        await self._generator.names.find(body.model, key_name.get())
        self._generator.check(body.model, None)
        skip = body.skip_special_tokens is not False
        if len(body.tokens) > max(self._most, MAX_PROMPTS):  # checked first: there may be a million
            self._refuse_length(len(body.tokens), "tokens")
        kinds = set(map(type, body.tokens))
        if kinds <= {int}:
            one = cast("Tokens", body.tokens)
            self._check(one, "tokens")
            text: str | list[str] = (await self._generator.texts.decode_all([one], skip))[0]
        elif kinds == {list}:
            text = await self._decode_lists(cast("list[Tokens]", body.tokens), skip)
        else:
            raise RequestError(
                "tokens mixes kinds; it must be a list of token ids or a list of such lists", param="tokens"
            )
        return Detokenized(prompt=text, text=text)

    async def _names(self, found: Sequence[Tokens]) -> list[list[str]]:
        """Return the tokens of each list as strings."""

        def names() -> list[list[str]]:
            return [self._tokenizer.token_names(tokens) for tokens in found]

        size = sum(map(len, found))
        return names() if size <= LONG_TEXT else await self._generator.threads.run(size, names)

    async def _decode_lists(self, lists: list[Tokens], skip: bool) -> list[str]:
        if len(lists) > MAX_PROMPTS:
            raise RequestError(
                f"tokens holds {len(lists)} lists; at most {MAX_PROMPTS} are allowed", param="tokens"
            )
        together, limit = sum(map(len, lists)), max(MAX_DECODED, self._most)
        if together > limit:
            raise RequestError(
                f"tokens has {together} token ids in all of its lists together; at most {limit} are decoded: send several "
                "requests",
                param="tokens",
            )
        for i, each in enumerate(lists):
            self._check(each, f"tokens[{i}]")
        return await self._generator.texts.decode_all(lists, skip)

    @property
    def _most(self) -> int:
        """Maximum number of token ids to decode per list: CHARACTERS_A_TOKEN times the context length."""
        return CHARACTERS_A_TOKEN * self._generator.info.max_model_len

    def _refuse_length(self, length: int, param: str) -> NoReturn:
        limit = self._generator.info.max_model_len
        raise ContextLengthError(
            f"this model's maximum context length is {limit} tokens; {param} has {length}, and at most {self._most} "
            "are decoded",
            param=param,
        )

    def _check(self, tokens: Sequence[int], param: str) -> None:
        size = self._generator.info.vocab_size
        if len(tokens) > self._most:
            self._refuse_length(len(tokens), param)
        if not tokens or (min(tokens) >= 0 and max(tokens) < size):
            return
        wrong = [(i, token) for i, token in enumerate(tokens) if not 0 <= token < size]
        shown = ", ".join(f"{param}[{i}] is {token}" for i, token in wrong[:MAX_NAMED])
        more = f" and {len(wrong) - MAX_NAMED} more are wrong" if len(wrong) > MAX_NAMED else ""
        raise RequestError(
            f"{shown}{more}; this model's token ids go from 0 to {size - 1}",
            param=f"{param}[{wrong[0][0]}]",
        )


def _chat_of(body: TokenizeRequest) -> ChatRequest:
    return ChatRequest(
        messages=body.messages or [],
        tools=body.tools,
        chat_template_kwargs=body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )
