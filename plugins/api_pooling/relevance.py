"""Scores pairs of texts by what the model can do: a cross-encoder, embeddings, or log probabilities."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from llmfw.core import RequestError, RouteServices, ServerAPI

from .bodies import SimilarityBody
from .embedding import HTTPRequest, embed, refuse_given, renamed
from .replies import Usage
from .together import Together

CROSS_ENCODER, EMBEDDINGS, LOGPROBS = "cross-encoder", "embeddings", "log-probabilities"

EPSILON = 1e-8  # least product of lengths, so that a vector of zeros has similarity 0
MAX_PAIRS = 2048
TOGETHER = 16  # pairs of one request that a generative model scores at a time
QUESTION = (
    "Does the document answer the query? Answer yes or no, with one word.\n\n"
    "Query: {query}\n\nDocument: {document}"
)
ANSWERS = ("yes", "no")

_COSINE = "a score is the cosine similarity of two embeddings; other scores need a cross-encoder"
_YES = "a score is the probability of yes; other scores need a cross-encoder"
_ACTIVATIONS = ("activation", "use_activation")


class Texts(msgspec.Struct, frozen=True):
    """Texts of a request, and the name of each in errors."""

    texts: Sequence[str]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)


class Relevance(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of pairs.

    Attributes:
        method: how the scores were computed.
        scores: a score for each pair.
    """

    method: str
    scores: Sequence[float]
    usage: Usage


def method_of(services: RouteServices) -> str:
    """Return the method by which the server's model scores pairs."""
    return {"classify": CROSS_ENCODER, "embed": EMBEDDINGS}.get(services.task, LOGPROBS)


def without_effect(body: SimilarityBody, method: str) -> list[str]:
    """Return the fields of a body that have no effect with this method.

    Raises:
        RequestError: a field would change the scores, and is not supported.
    """
    if method != CROSS_ENCODER:
        reason = _COSINE if method == EMBEDDINGS else _YES
        refuse_given(body, dict.fromkeys(_ACTIVATIONS, reason))
    # Only the server's own routes let a client without a key name a tenant.
    return ["user"] if method != EMBEDDINGS and body.user is not None else []


async def relevance_of(
    api: ServerAPI,
    services: RouteServices,
    request: HTTPRequest,
    body: SimilarityBody,
    first: Texts,
    second: Texts,
) -> Relevance:
    """Score each text of `second` against the only text of `first`, or the text at the same index.

    Raises:
        RequestError: a text is wrong; the error names the text as in the request.
    """
    method = method_of(services)
    if method == EMBEDDINGS:
        fields: dict[str, Any] = {"model": body.model, "timeout": body.timeout, "user": body.user}
        texts, names = [*first.texts, *second.texts], [*first.names, *second.names]
        vectors, usage = await embed(api, request, texts, names, **fields)
        scores = cosines(vectors[: len(first)], vectors[len(first) :])
        return Relevance(method=method, scores=scores, usage=usage)
    services.check_model(body.model)
    if len(second) > MAX_PAIRS:
        raise RequestError(
            f"the request has {len(second)} pairs; at most {MAX_PAIRS} are allowed", param=second.names[-1]
        )
    _refuse_empty(first)
    _refuse_empty(second)
    queries = list(first.texts) * (len(second) if len(first) == 1 else 1)
    pairs = list(zip(queries, second.texts, strict=True))
    work = _cross_encoded if method == CROSS_ENCODER else _asked
    return await api.while_connected(request, work(services, body, pairs, second.names))


def cosines(first: Sequence[bytes], second: Sequence[bytes]) -> list[float]:
    """Return the cosine similarity of each pair of vectors.

    Args:
        first: float32 values of one vector, or of one vector for each of `second`.
    """
    a, b = (
        np.stack([np.frombuffer(each, "<f4") for each in side]).astype(np.float64) for side in (first, second)
    )
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    found = (a * b).sum(axis=1) / np.maximum(lengths, EPSILON)
    return [min(1.0, max(-1.0, float(each))) for each in found]


async def _cross_encoded(
    services: RouteServices,
    body: SimilarityBody,
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str],
) -> Relevance:
    """Score pairs with a cross-encoder, whose classification head has one label."""
    try:
        found = await services.classify(pairs, timeout_s=body.timeout)
    except RequestError as error:
        raise renamed(error, names, "inputs[{}]") from error
    if len(found.labels) != 1:
        raise RequestError(
            f"this model has {len(found.labels)} labels; a cross-encoder has one. Use /v1/classify",
            code="unsupported_operation",
        )
    is_raw = body.activation is False or body.use_activation is False
    scores = [row[0] for row in (found.logits if is_raw else found.scores)]
    usage = Usage(found.prompt_tokens, found.prompt_tokens)
    return Relevance(method=CROSS_ENCODER, scores=scores, usage=usage)


async def _asked(
    services: RouteServices,
    body: SimilarityBody,
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str],
) -> Relevance:
    """Ask a generative model whether each document answers its query. The score is the probability of yes."""
    together = Together(TOGETHER)

    async def ask(pair: tuple[str, str], name: str) -> tuple[float, int]:
        text = QUESTION.format(query=pair[0], document=pair[1])
        try:
            prompt = await prompt_of(services, text)
            found = await services.score(prompt, ANSWERS, timeout_s=body.timeout)
        except RequestError as error:
            error.param = name
            raise
        yes, no = (each.logprob for each in found.continuations)
        return shares([yes, no])[0], found.prompt_tokens

    tasks = [
        asyncio.create_task(together.run(partial(ask, pair, name)))
        for pair, name in zip(pairs, names, strict=True)
    ]
    try:
        results = await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # a task has failed, or the client has left
            task.cancel()
    count = sum(tokens for _, tokens in results)
    return Relevance(method=LOGPROBS, scores=[score for score, _ in results], usage=Usage(count, count))


async def prompt_of(services: RouteServices, text: str) -> Sequence[int]:
    """Return the tokens of a prompt that asks a question, as a chat if the model has a chat template."""
    if not services.has_chat_template:
        return await services.encode(f"{text}\n\nAnswer: ")
    rendered = await services.render([{"role": "user", "content": text}])
    return await services.encode(rendered, add_special_tokens=False)


def shares(logprobs: Sequence[float]) -> list[float]:
    """Return each probability divided by the sum of all probabilities."""
    largest = max(logprobs)
    weights = [math.exp(each - largest) for each in logprobs]
    return [weight / sum(weights) for weight in weights]


def _refuse_empty(side: Texts) -> None:
    for text, name in zip(side.texts, side.names, strict=True):
        if not text:
            raise RequestError(f"{name} is an empty string; there is nothing to compare", param=name)
