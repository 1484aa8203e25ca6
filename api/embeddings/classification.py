"""Classifies texts and pairs of texts with a model that has a classification head. Does not depend on HTTP."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Sequence

from llmfw.api.text.generation import Generator
from llmfw.api.text.terms import Terms
from llmfw.core.base.errors import ContextLengthError, RequestError
from llmfw.core.base.request import EmbedRequest
from llmfw.core.interfaces.route_services import Classifications
from llmfw.core.interfaces.tokenizer import LONG_TEXT

from .embeddings import FLOAT_BYTES, MAX_CHARS_A_TOKEN, MAX_INPUTS


class ClassificationService:
    """Computes logits and scores.

    Args:
        generator: generator with the engine client and the tokenizer.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def classify(self, inputs: Sequence[str | tuple[str, str]], terms: Terms) -> Classifications:
        """Return the scores of each text or pair of texts.

        Raises:
            RequestError: an input is wrong; the error names it as `inputs[i]`.
            EngineError: the engine failed on this request.
        """
        self._generator.check(None, "classify")
        if not 0 < len(inputs) <= MAX_INPUTS:
            raise RequestError(f"there are {len(inputs)} inputs; give 1 to {MAX_INPUTS}", param="inputs")
        for index, each in enumerate(inputs):
            self._check_text(f"inputs[{index}]", each)
        tokenizer = self._generator.tokenizer
        await self._check_long(inputs)
        size = sum(map(_size, inputs))
        encoded = await self._generator.threads.run(size, lambda: list(map(tokenizer.encode_pair, inputs)))
        for index, (ids, _) in enumerate(encoded):
            self._check_prompt(f"inputs[{index}]", ids)
        request = EmbedRequest(
            id=f"classify-{uuid.uuid4().hex}",
            prompts=[ids for ids, _ in encoded],
            type_ids=[kinds for _, kinds in encoded],
            tenant=terms.tenant,
            tenant_is_key=terms.tenant_is_key,
            timeout_s=terms.timeout_s,
        )
        info = self._generator.info
        rows = _rows(await self._generator.client.embed(request), len(info.labels))
        return Classifications(
            labels=info.labels,
            activation=info.activation,
            logits=rows,
            scores=[_activated(row, info.activation) for row in rows],
            prompt_tokens=sum(map(len, request.prompts)),
        )

    async def _check_long(self, inputs: Sequence[str | tuple[str, str]]) -> None:
        """Raise ContextLengthError if a text cannot fit, before encoding takes 100 times its memory."""
        texts = self._generator.texts
        for index, given in enumerate(inputs):
            for text in (given,) if isinstance(given, str) else given:
                if len(text) > LONG_TEXT:
                    await texts.encode(text, param=f"inputs[{index}]")

    def _check_text(self, name: str, given: str | tuple[str, str]) -> None:
        texts = (given,) if isinstance(given, str) else given
        if not all(texts):
            raise RequestError(f"{name} has an empty text; there is nothing to classify", param=name)
        limit = self._generator.info.max_model_len
        if _size(given) > limit * MAX_CHARS_A_TOKEN:
            raise ContextLengthError(
                f"this model's maximum context length is {limit} tokens; {name} has {_size(given)} characters",
                param=name,
            )

    def _check_prompt(self, name: str, ids: Sequence[int]) -> None:
        limit = self._generator.info.max_model_len
        if len(ids) > limit:
            raise ContextLengthError(
                f"this model's maximum context length is {limit} tokens; {name} has {len(ids)}", param=name
            )


def _size(given: str | tuple[str, str]) -> int:
    return len(given) if isinstance(given, str) else sum(map(len, given))


def _rows(vectors: bytes, width: int) -> list[list[float]]:
    size = width * FLOAT_BYTES
    return [
        list(struct.unpack(f"<{width}f", vectors[start : start + size]))
        for start in range(0, len(vectors), size)
    ]


def _activated(logits: Sequence[float], activation: str) -> list[float]:
    if activation == "identity":
        return list(logits)
    if activation == "sigmoid":
        return [_sigmoid(logit) for logit in logits]
    largest = max(logits)
    weights = [math.exp(logit - largest) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))  # exp(-logit) would overflow
