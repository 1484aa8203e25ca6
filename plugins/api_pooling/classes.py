"""POST /classify: the labels of texts, by the model's classification head or by labels that the request names."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from litestar import Request, post
from litestar.datastructures import State
from litestar.types import ASGIApp

from llmfw.core import RequestError, RouteServices, ServerAPI, describe

from .bodies import ClassifyBody
from .embedding import HTTPRequest, embed, json_reply, refuse_given, renamed
from .relevance import CROSS_ENCODER, EMBEDDINGS, LOGPROBS, MAX_PAIRS, cosines, method_of, prompt_of, shares
from .replies import ClassifyReply, LabelScores, Usage

HEAD = "classification-head"
MAX_LABELS = 128
QUESTION = "Which of these labels fits the text best: {labels}? Answer with the label alone.\n\nText: {text}"
REFUSED = {
    "truncate_prompt_tokens": "a text that is too long is refused, never cut",
    "chat_template": "--chat-template chooses it for the server",
}


@post(
    ["/classify", "/v1/classify"],
    status_code=200,
    opt=describe("Find the label of texts.", scope="embed", body=ClassifyBody, reply=ClassifyReply),
)
async def classify(request: Request[Any, Any, Any], state: State) -> ASGIApp:
    """Score each text for each label of the model or of the request."""
    api: ServerAPI = state["api"]
    body, ignored = await api.read(request, ClassifyBody)
    services: RouteServices = state["services"].for_model(body.model)
    by_head = method_of(services) == CROSS_ENCODER
    user = ["user"] if body.user is not None and method_of(services) != EMBEDDINGS else []
    headers = api.report([*ignored, *user])
    refuse_given(body, REFUSED)
    services.check_model(body.model)
    texts, names = _texts_of(body)
    if by_head:
        refuse_given(body, {"labels": "the model has labels of its own"})
        reply = await api.while_connected(request, _by_head(services, body, texts, names))
    else:
        labels = _labels_of(body)
        refuse_given(body, dict.fromkeys(("activation", "use_activation"), "scores are shares of the labels"))
        if method_of(services) == EMBEDDINGS:
            reply = await _by_embeddings(api, request, body, labels, texts, names)
        else:
            reply = await api.while_connected(request, _by_logprobs(services, body, labels, texts, names))
    reply.model = api.model_named(body.model).name
    return json_reply(reply, headers)


async def _by_head(
    services: RouteServices, body: ClassifyBody, texts: Sequence[str], names: Sequence[str]
) -> ClassifyReply:
    try:
        found = await services.classify(texts, timeout_s=body.timeout)
    except RequestError as error:
        raise renamed(error, names, "inputs[{}]") from error
    is_raw = body.activation is False or body.use_activation is False
    rows = found.logits if is_raw else found.scores
    return _reply(HEAD, found.labels, rows, found.prompt_tokens)


async def _by_embeddings(
    api: ServerAPI,
    request: HTTPRequest,
    body: ClassifyBody,
    labels: Sequence[str],
    texts: Sequence[str],
    names: Sequence[str],
) -> ClassifyReply:
    """Compare text and label embeddings by cosine similarity. Probabilities are the softmax of these."""
    every = [*labels, *texts]
    label_names = [f"labels[{index}]" for index in range(len(labels))]
    fields: dict[str, Any] = {"model": body.model, "timeout": body.timeout, "user": body.user}
    vectors, usage = await embed(api, request, every, [*label_names, *names], **fields)
    count = len(labels)
    rows = [shares(cosines([vector], vectors[:count])) for vector in vectors[count:]]
    return _reply(EMBEDDINGS, labels, rows, usage.prompt_tokens)


async def _by_logprobs(
    services: RouteServices,
    body: ClassifyBody,
    labels: Sequence[str],
    texts: Sequence[str],
    names: Sequence[str],
) -> ClassifyReply:
    """Ask a generative model for the label. A label's probability is its share among all labels."""
    if len(texts) * len(labels) > MAX_PAIRS:
        raise RequestError(
            f"{len(texts)} texts with {len(labels)} labels are {len(texts) * len(labels)} pairs to score; at most "
            f"{MAX_PAIRS} are allowed: send fewer texts or labels",
            param="input",
        )
    rows, count = [], 0
    for text, name in zip(texts, names, strict=True):
        try:
            prompt = await prompt_of(services, QUESTION.format(labels=", ".join(labels), text=text))
            found = await services.score(prompt, labels, timeout_s=body.timeout)
        except RequestError as error:
            error.param = name
            raise
        rows.append(shares([each.logprob for each in found.continuations]))
        count += found.prompt_tokens
    return _reply(LOGPROBS, labels, rows, count)


def _reply(method: str, labels: Sequence[str], rows: Sequence[Sequence[float]], count: int) -> ClassifyReply:
    data = [
        LabelScores(
            index=index,
            label=labels[max(range(len(row)), key=row.__getitem__)],
            probs=list(row),
            num_classes=len(row),
        )
        for index, row in enumerate(rows)
    ]
    return ClassifyReply(
        id=f"classify-{uuid.uuid4().hex}",
        created=int(time.time()),
        method=method,
        labels=list(labels),
        data=data,
        usage=Usage(count, count),
    )


def _texts_of(body: ClassifyBody) -> tuple[list[str], list[str]]:
    given = body.input
    texts, names = ([given], ["input"]) if isinstance(given, str) else (given, [])
    if not texts:
        raise RequestError("input is an empty list; at least one text is needed", param="input")
    names = names or [f"input[{index}]" for index in range(len(texts))]
    for text, name in zip(texts, names, strict=True):
        if not text:
            raise RequestError(f"{name} is an empty string; there is nothing to classify", param=name)
    return texts, names


def _labels_of(body: ClassifyBody) -> list[str]:
    """Return the labels that the request names; raise RequestError unless there are at least two of them."""
    labels = body.labels or []
    if not 2 <= len(labels) <= MAX_LABELS or len(set(labels)) < len(labels) or not all(labels):
        raise RequestError(
            f"labels has {len(labels)} labels; this model has no classification head, so name 2 to {MAX_LABELS}, all "
            "different and not empty",
            param="labels",
        )
    return labels
