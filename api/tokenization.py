"""Text → token ids and back, as the model's prompts are made. Generates nothing, and knows nothing of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from msgspec import UNSET

from llmfw.core.errors import RequestError
from llmfw.core.tokenizer import LONG_TEXT

from .chat.service import ChatService
from .completions.prompts import MAX_PROMPTS
from .generation import Generator
from .schemas.chat import ChatRequest
from .schemas.tokenize import (
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
    TokenizerInfo,
    Tokens,
)

MAX_NAMED = 5  # wrong token ids that an error names


class TokenizationService:
    """Tokenises prompts and chats, and turns tokens into text.

    Args:
        generator: has the tokenizer.
        chat: renders messages, so that the tokens are those that a chat would have.
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
        """Return the token ids of a body's prompt, prompts or messages.

        Raises:
            RequestError: names the field that is wrong.
        """
        self._generator.check(body.model, None)
        if (body.prompt is None) == (body.messages is None):
            problem = "both missing; one of them is needed" if body.prompt is None else "both given; give one"
            raise RequestError(f"prompt and messages are {problem}", param="prompt")
        # A rendered chat has its special tokens already.
        special = body.messages is None if body.add_special_tokens is None else body.add_special_tokens
        texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        if texts is None:
            texts = [self._render(body)]
        if len(texts) > MAX_PROMPTS:
            raise RequestError(
                f"prompt holds {len(texts)} prompts; at most {MAX_PROMPTS} are allowed", param="prompt"
            )
        found = [await self._generator.encode(text, add_special_tokens=special) for text in texts]
        names = [self._tokenizer.token_names(tokens) for tokens in found] if body.return_token_strs else None
        one = not isinstance(body.prompt, list)
        return Tokenized(
            tokens=[*found[0]] if one else [*found],
            count=len(found[0]) if one else [len(tokens) for tokens in found],
            max_model_len=self._generator.info.max_model_len,
            token_strs=UNSET if names is None else [*names[0]] if one else [*names],
        )

    async def detokenize(self, body: DetokenizeRequest) -> Detokenized:
        """Return the text of a body's tokens.

        Raises:
            RequestError: names the token ids that the model does not have, or the field that is wrong.
        """
        self._generator.check(body.model, None)
        skip = body.skip_special_tokens is not False
        num_lists = sum(isinstance(item, list) for item in body.tokens)
        if num_lists > MAX_PROMPTS:
            raise RequestError(
                f"tokens holds {num_lists} lists; at most {MAX_PROMPTS} are allowed", param="tokens"
            )
        if all(isinstance(item, int) for item in body.tokens):
            text: str | list[str] = await self._decode(cast("Tokens", body.tokens), "tokens", skip)
        elif all(isinstance(item, list) for item in body.tokens):
            lists = cast("list[Tokens]", body.tokens)
            text = [await self._decode(each, f"tokens[{i}]", skip) for i, each in enumerate(lists)]
        else:
            raise RequestError(
                "tokens mixes kinds; it must be a list of token ids or a list of such lists", param="tokens"
            )
        return Detokenized(prompt=text, text=text)

    def _render(self, body: TokenizeRequest) -> str:
        return self._chat.render(
            ChatRequest(
                messages=body.messages or [],
                tools=body.tools,
                chat_template_kwargs=body.chat_template_kwargs,
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
            )
        )

    async def _decode(self, tokens: Tokens, param: str, skip: bool) -> str:
        self._check(tokens, param)
        if len(tokens) <= LONG_TEXT:
            return self._tokenizer.decode(tokens, skip_special_tokens=skip)
        return await asyncio.to_thread(self._tokenizer.decode, tokens, skip_special_tokens=skip)

    def _check(self, tokens: Sequence[int], param: str) -> None:
        size = self._generator.info.vocab_size
        wrong = [(i, token) for i, token in enumerate(tokens) if not 0 <= token < size]
        if wrong:
            shown = ", ".join(f"{param}[{i}] is {token}" for i, token in wrong[:MAX_NAMED])
            more = f" and {len(wrong) - MAX_NAMED} more are wrong" if len(wrong) > MAX_NAMED else ""
            raise RequestError(
                f"{shown}{more}; this model's token ids go from 0 to {size - 1}",
                param=f"{param}[{wrong[0][0]}]",
            )
