"""Turns an embedding request into one engine request, and the engine's vectors into a reply.

Uses OpenAI's schemas, but does not depend on HTTP: routes and batch jobs use it in the same way.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import cast

from llmfw.api.chat.service import ChatService
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.embeddings import Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage
from llmfw.api.text.generation import Generator
from llmfw.api.text.terms import key_name, tenant_of
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.base.request import EmbedRequest

MAX_INPUTS = 2048
FLOAT_BYTES = 4
MAX_CHARS_A_TOKEN = 1000  # an upper estimate: long white space and unknown words have few tokens


class EmbeddingService:
    """Answers embedding requests.

    Args:
        generator: generator with the engine client, the tokenizer and the model's name.
        chat: chat service that renders messages.
    """

    def __init__(self, generator: Generator, chat: ChatService) -> None:
        self._generator = generator
        self._chat = chat

    async def reply(self, body: EmbeddingRequest) -> EmbeddingList:
        """Return the reply to an embedding request. Cancelling the call aborts the engine request.

        Raises:
            RequestError: a field is wrong; the error names it.
            EngineError: the engine failed on this request.
        """
        self._generator.check(body.model, "embed")
        dimensions = self._dimensions(body.dimensions)
        names, prompts = await self._prompts(body)
        for name, prompt in zip(names, prompts, strict=True):
            self._check_prompt(name, prompt)
        request = EmbedRequest(
            id=f"embd-{uuid.uuid4().hex}",
            prompts=list(prompts),
            dimensions=body.dimensions,
            tenant=tenant_of(body.user),
            tenant_is_key=bool(key_name.get()),
            timeout_s=body.timeout,
        )
        vectors = await self._generator.client.embed(request)
        as_text = body.encoding_format == "base64"
        count = sum(map(len, prompts))
        return EmbeddingList(
            data=[
                Embedding(index=index, embedding=_as_base64(row) if as_text else _as_floats(row))
                for index, row in enumerate(_rows(vectors, dimensions * FLOAT_BYTES))
            ],
            model=self._generator.served_name,
            usage=EmbeddingUsage(prompt_tokens=count, total_tokens=count),
        )

    def _dimensions(self, asked: int | None) -> int:
        info = self._generator.info
        size, allowed = info.embedding_size, info.matryoshka_dimensions
        if asked is None or asked == size:
            return size
        if not 1 <= asked <= size:
            raise RequestError(
                f"dimensions is {asked}; this model's vectors have {size}: give 1 to {size}",
                param="dimensions",
            )
        if not info.is_matryoshka:
            raise RequestError(
                f"dimensions is {asked}; this model's vectors have {size}, and its config.json does not say that they can be "
                "cut: leave it out, or set is_matryoshka to true in config.json if the model was trained for it",
                param="dimensions",
                code="unsupported_parameter",
            )
        if allowed and asked not in allowed:
            raise RequestError(
                f"dimensions is {asked}; this model's vectors can be cut to {', '.join(map(str, allowed))}",
                param="dimensions",
            )
        return asked

    async def _prompts(self, body: EmbeddingRequest) -> tuple[list[str], Sequence[list[int]]]:
        """Return the name of each input in error messages, and the token ids of each input."""
        if body.messages is None:
            if body.input is None:
                raise RequestError("input is missing; it is required", param="input")
            _refuse_chat_fields(body)
            return await self._inputs(body.input, special=body.add_special_tokens is not False)
        if body.input is not None:
            raise RequestError("input and messages are both given; give one", param="messages")
        text = await self._chat.render(
            ChatRequest(
                messages=body.messages,
                chat_template_kwargs=body.chat_template_kwargs,
                add_generation_prompt=bool(body.add_generation_prompt),
                continue_final_message=body.continue_final_message,
            )
        )
        self._check_text("messages", text)
        # A rendered chat contains its special tokens already.
        tokens = await self._generator.texts.encode(
            text, param="messages", add_special_tokens=bool(body.add_special_tokens)
        )
        return ["messages"], [tokens]

    async def _inputs(
        self, given: str | list[str | int | list[int]], *, special: bool
    ) -> tuple[list[str], Sequence[list[int]]]:
        if isinstance(given, str):
            self._check_text("input", given)
            tokens = await self._generator.texts.encode(given, param="input", add_special_tokens=special)
            return ["input"], [tokens]
        if not given:
            raise RequestError("input is an empty list; at least one input is needed", param="input")
        if len({type(item) for item in given}) > 1:
            raise RequestError(
                "input mixes kinds; it must be a string, token ids, or a list of strings or of lists of token ids",
                param="input",
            )
        if isinstance(given[0], int):
            return ["input"], [cast("list[int]", given)]
        if len(given) > MAX_INPUTS:
            raise RequestError(
                f"input holds {len(given)} inputs; at most {MAX_INPUTS} are allowed", param="input"
            )
        names = [f"input[{index}]" for index in range(len(given))]
        if isinstance(given[0], str):
            texts = cast("list[str]", given)
            for name, text in zip(names, texts, strict=True):
                self._check_text(name, text)
            return names, await self._generator.texts.encode_all(texts, "input", add_special_tokens=special)
        return names, cast("list[list[int]]", given)

    def _check_text(self, name: str, text: str) -> None:
        limit = self._generator.info.max_model_len
        if not text:
            raise RequestError(f"{name} is an empty string; there is nothing to embed", param=name)
        if len(text) > limit * MAX_CHARS_A_TOKEN:  # encoding it would take a hundred times its memory
            raise ContextLengthError(
                f"this model's maximum context length is {limit} tokens; {name} has {len(text)} characters",
                param=name,
            )

    def _check_prompt(self, name: str, prompt: Sequence[int]) -> None:
        info = self._generator.info
        if not prompt:
            raise RequestError(f"{name} has no tokens; at least one is needed", param=name)
        if len(prompt) > info.max_model_len:
            raise ContextLengthError(
                f"this model's maximum context length is {info.max_model_len} tokens; {name} has {len(prompt)}",
                param=name,
            )
        wrong = next((token for token in prompt if not 0 <= token < info.vocab_size), None)
        if wrong is not None:
            raise RequestError(
                f"{name} has the token id {wrong}; this model's go from 0 to {info.vocab_size - 1}",
                param=name,
            )


def _refuse_chat_fields(body: EmbeddingRequest) -> None:
    """Raise RequestError for a field of messages in a request without messages."""
    for name in ("chat_template_kwargs", "add_generation_prompt", "continue_final_message"):
        if getattr(body, name):
            raise RequestError(f"{name} needs messages; input is embedded as it is", param=name)


def _rows(vectors: bytes, size: int) -> Iterator[bytes]:
    """Yield the vectors one by one. Each has `size` bytes."""
    for start in range(0, len(vectors), size):
        yield vectors[start : start + size]


def _as_base64(row: bytes) -> str:
    return base64.b64encode(row).decode("ascii")


def _as_floats(row: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(row) // FLOAT_BYTES}f", row))
