"""Turns an embedding request into one engine request, and the engine's vectors into a reply.

Uses OpenAI's schemas, but does not depend on HTTP: routes and batch jobs use it in the same way.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import cast

from llmfw.api.schemas.embeddings import Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage
from llmfw.api.text.generation import Generator
from llmfw.api.text.terms import key_name, tenant_of
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.base.request import EmbedRequest

MAX_INPUTS = 2048
FLOAT_BYTES = 4
MAX_CHARS_A_TOKEN = 1000  # the most expected: long white space and unknown words have few tokens


class EmbeddingService:
    """Answers embedding requests.

    Args:
        generator: generator with the engine client, the tokenizer and the model's name.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def reply(self, body: EmbeddingRequest) -> EmbeddingList:
        """Return the reply to an embedding request. Cancelling the call aborts the engine request.

        Raises:
            RequestError: a field is wrong; the error names it.
            EngineError: the engine failed on this request.
        """
        self._generator.check(body.model, "embed")
        dimensions = self._dimensions(body.dimensions)
        names, prompts = await self._prompts(body.input)
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
        size = self._generator.info.embedding_size
        if asked is not None and not 1 <= asked <= size:
            raise RequestError(
                f"dimensions is {asked}; this model's vectors can be cut to 1 to {size}", param="dimensions"
            )
        return asked or size

    async def _prompts(
        self, given: str | list[str | int | list[int]]
    ) -> tuple[list[str], Sequence[list[int]]]:
        """Return the name of each input in error messages, and the token ids of each input."""
        if isinstance(given, str):
            self._check_text("input", given)
            return ["input"], [await self._generator.texts.encode(given, param="input")]
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
            return names, await self._generator.texts.encode_all(texts, "input")
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


def _rows(vectors: bytes, size: int) -> Iterator[bytes]:
    """Yield the vectors one by one. Each has `size` bytes."""
    for start in range(0, len(vectors), size):
        yield vectors[start : start + size]


def _as_base64(row: bytes) -> str:
    return base64.b64encode(row).decode("ascii")


def _as_floats(row: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(row) // FLOAT_BYTES}f", row))
