"""POST /v1/tokenize and /v1/detokenize, GET /v1/tokenizer_info; also without /v1, as in vLLM and SGLang."""

from __future__ import annotations

from typing import Any

from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.schemas.tokenize import (
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
    TokenizerInfo,
)
from llmfw.api.text.by_model import ByModel
from llmfw.api.tokenize.tokenization import TokenizationService
from llmfw.core.interfaces.operation import describe

from .respond import json_response, model_in, read_json, while_connected


def tokenize_routes(
    services: ByModel[TokenizationService], *, strict: bool = False
) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/tokenize`, `/v1/detokenize` and `/v1/tokenizer_info`.

    Args:
        services: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        ["/v1/tokenize", "/tokenize"],
        status_code=200,
        opt=describe("Tokenize a prompt or a chat.", scope="tokenize", body=TokenizeRequest, reply=Tokenized),
    )
    async def tokenize(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), TokenizeRequest)
        headers = report_ignored(ignored, strict)
        service = services.of(body.model)
        return json_response(await while_connected(request.receive, service.tokenize(body)), headers)

    @post(
        ["/v1/detokenize", "/detokenize"],
        status_code=200,
        opt=describe("Convert tokens to text.", scope="tokenize", body=DetokenizeRequest, reply=Detokenized),
    )
    async def detokenize(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), DetokenizeRequest)
        headers = report_ignored(ignored, strict)
        service = services.of(body.model)
        return json_response(await while_connected(request.receive, service.detokenize(body)), headers)

    @get(
        ["/v1/tokenizer_info", "/tokenizer_info"],
        opt=describe(
            "Return the tokenizer's special tokens.",
            scope="tokenize",
            reply=TokenizerInfo,
            query={"model": str},
        ),
    )
    async def tokenizer_info(request: Request[Any, Any, Any]) -> ASGIApp:
        return json_response(services.of(model_in(request)).info())

    return [tokenize, detokenize, tokenizer_info]
