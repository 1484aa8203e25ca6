"""POST /score and POST /rerank: the relevance of texts for other texts, and the method that computed it."""

from __future__ import annotations

import time
import uuid
from typing import Any

from litestar import Controller, Request, post
from litestar.datastructures import State
from litestar.types import ASGIApp

from llmfw.core import RequestError, RouteServices, ServerAPI, describe

from .bodies import RerankBody, ScoreBody
from .bodies import Texts as TextOrList
from .embedding import json_reply, refuse_given
from .relevance import Texts, method_of, relevance_of, without_effect
from .replies import Document, Ranked, RerankReply, Score, ScoreReply

_NEVER_CUT = "a text that is too long is refused, never cut"
REFUSED = {
    "instruction": "this server adds no prefix; write it into the texts",
    **dict.fromkeys(("softmax", "chat_template"), "the model's files say what a score is"),
    **dict.fromkeys(
        ("truncate_prompt_tokens", "max_tokens_per_doc", "max_tokens_per_query", "max_chunks_per_doc"),
        _NEVER_CUT,
    ),
    "rank_fields": "documents are texts",
}
SCORE_REFUSED = {
    **REFUSED,
    "query": "give text_1 and text_2; for scores of tokens after a text use /generate with token_ids_logprob",
    "label_token_ids": "use /generate with token_ids_logprob, of a model that generates",
}
PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


class Similarity(Controller):
    """Routes that compare texts."""

    @post(
        ["/score", "/v1/score"],
        status_code=200,
        opt=describe(
            "Score how relevant texts are for others.", scope="embed", body=ScoreBody, reply=ScoreReply
        ),
    )
    async def score(self, request: Request[Any, Any, Any], state: State) -> ASGIApp:
        """Compare one text with each text of a list, or two lists of texts pair by pair."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, ScoreBody)
        services: RouteServices = state["services"].for_model(body.model)
        headers = api.report([*ignored, *without_effect(body, method_of(services))])
        refuse_given(body, SCORE_REFUSED)
        name_1, name_2 = _pair_of(body)
        first, names_1 = _list_of(name_1, getattr(body, name_1))
        second, names_2 = _list_of(name_2, getattr(body, name_2))
        if len(first) not in (1, len(second)):
            raise RequestError(
                f"{name_1} has {len(first)} texts and {name_2} {len(second)}; {name_1} must have one, or as many as {name_2}",
                param=name_1,
            )
        pairs = Texts(first, names_1), Texts(second, names_2)
        found = await relevance_of(api, services, request, body, *pairs)
        reply = ScoreReply(
            id=f"score-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=api.model_named(body.model).name,
            data=[Score(index=index, score=score) for index, score in enumerate(found.scores)],
            usage=found.usage,
            method=found.method,
        )
        return json_reply(reply, headers)

    @post(
        ["/rerank", "/v1/rerank", "/v2/rerank"],
        status_code=200,
        opt=describe(
            "Order documents by relevance for a query.", scope="embed", body=RerankBody, reply=RerankReply
        ),
    )
    async def rerank(self, request: Request[Any, Any, Any], state: State) -> ASGIApp:
        """Order documents by their relevance for the query."""
        api: ServerAPI = state["api"]
        body, ignored = await api.read(request, RerankBody)
        services: RouteServices = state["services"].for_model(body.model)
        headers = api.report([*ignored, *without_effect(body, method_of(services))])
        refuse_given(body, REFUSED)
        if body.top_n is not None and body.top_n < 0:
            raise RequestError(f"top_n is {body.top_n}; it must be 0 (all) or more", param="top_n")
        documents = [each if isinstance(each, str) else each.text for each in body.documents]
        texts, names = _list_of("documents", documents)
        pairs = Texts([body.query], ["query"]), Texts(texts, names)
        found = await relevance_of(api, services, request, body, *pairs)
        scores = found.scores
        order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n or len(texts)]
        results = [Ranked(index=index, relevance_score=scores[index]) for index in order]
        if body.return_documents is not False:
            for each in results:
                each.document = Document(texts[each.index])
        reply = RerankReply(
            id=f"rerank-{uuid.uuid4().hex}",
            model=api.model_named(body.model).name,
            usage=found.usage,
            results=results,
            method=found.method,
        )
        return json_reply(reply, headers)


def _pair_of(body: ScoreBody) -> tuple[str, str]:
    """Return the names of the two sides that a request gives."""
    names = sorted({name for pair in PAIRS for name in pair})
    given = {name for name in names if getattr(body, name) is not None}
    found = next((pair for pair in PAIRS if given == set(pair)), None)
    if found is None:
        shown = ", ".join(sorted(given)) or "none of them"
        raise RequestError(
            f"the texts to compare are text_1 and text_2 (or queries and documents, or data_1 and data_2); given: {shown}",
            param="text_1",
        )
    return found


def _list_of(name: str, given: TextOrList) -> tuple[list[str], list[str]]:
    """Return the texts of one side, and their names in errors."""
    if isinstance(given, str):
        return [given], [name]
    if not given:
        raise RequestError(f"{name} is an empty list; at least one text is needed", param=name)
    return given, [f"{name}[{index}]" for index in range(len(given))]
