"""Routes below /admin, and SGLang's /flush_cache. `admin.access` checks who may use them."""

from __future__ import annotations

import contextlib
from typing import Any

from litestar import HttpMethod, Request, delete, get, post, put, route
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.admin.service import AdminService
from llmfw.api.health.usable import not_failed
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.schemas.admin import CacheReply, PinRequest, PolicyRequest, TraceReply
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.control import PinInfo, PolicyInfo
from llmfw.core.base.errors import EngineError, NotFoundError, RequestError
from llmfw.core.interfaces.operation import describe

from .respond import json_response, model_in, read_json, read_nothing, while_connected

MOST_PREFIXES, DEFAULT_PREFIXES = 1000, 50


def admin_routes(models: ByModel[AdminService], *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin`.

    Args:
        models: services of the models. Requests without `?model=` are for the first.
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_policy_routes(models, strict), *_cache_routes(models, strict), *_pin_routes(models, strict)]


def _policy_routes(models: ByModel[AdminService], strict: bool) -> list[HTTPRouteHandler]:
    @get(
        "/admin/policy",
        opt=describe(
            "Return the scheduling policy in use.", scope="admin", reply=PolicyInfo, query={"model": str}
        ),
    )
    async def get_policy(request: Request[Any, Any, Any]) -> ASGIApp:
        return json_response(await models.of(model_in(request)).policy())

    @put(
        "/admin/policy",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Switch to another scheduling policy.",
            scope="admin",
            body=PolicyRequest,
            reply=PolicyInfo,
            query={"model": str},
        ),
    )
    async def set_policy(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), PolicyRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await models.of(model_in(request)).set_policy(body), headers)

    @get(
        "/admin/requests/{request_id:str}",
        opt=describe("Return the scheduling decisions about a request.", scope="admin", reply=TraceReply),
    )
    async def trace_request(request_id: str) -> ASGIApp:
        return json_response(await _trace_of(models, request_id))

    return [get_policy, set_policy, trace_request]


def _cache_routes(models: ByModel[AdminService], strict: bool) -> list[HTTPRouteHandler]:
    @get(
        "/admin/cache",
        opt=describe(
            "List the contents of the prefix cache.",
            scope="admin",
            reply=CacheReply,
            query={"most": int, "model": str},
        ),
    )
    async def view_cache(request: Request[Any, Any, Any]) -> ASGIApp:
        most = _read_most(request.query_params.get("most"))
        return json_response(await models.of(model_in(request)).cache(most))

    @post(
        "/admin/cache/flush",
        status_code=200,
        opt=describe(
            "Empty the prefix cache, except pages in use or pinned.",
            scope="admin",
            reply=CacheReply,
            query={"model": str},
        ),
    )
    async def flush_cache(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        return json_response(await models.of(model_in(request)).flush(), headers)

    @route(
        "/flush_cache",
        http_method=[HttpMethod.GET, HttpMethod.POST],
        status_code=200,
        opt=describe(
            "Empty the prefix cache, as SGLang does.", scope="admin", reply=str, media_type="text/plain"
        ),
    )
    async def flush_idle_cache(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        left = [await admin.flush(only_idle=True) for admin in _with_caches(models)]
        text = f"Cache flushed; {sum(each.num_tokens for each in left)} pinned tokens are left.\n"
        return ASGIResponse(body=text.encode(), media_type="text/plain", headers=headers)

    return [view_cache, flush_cache, flush_idle_cache]


def _with_caches(models: ByModel[AdminService]) -> list[AdminService]:
    """Return the services of the models that generate; the others have no prefix cache. If there are none, return
    all, whose engines then refuse the request."""
    running = not_failed(models)
    return [admin for admin in running if admin.task == "generate"] or running


def _pin_routes(models: ByModel[AdminService], strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/admin/cache/pins",
        status_code=200,
        opt=describe(
            "Pin a prefix, so that it is not evicted.", scope="admin", body=PinRequest, reply=PinInfo
        ),
    )
    async def pin_prefix(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), PinRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await while_connected(request.receive, models.of(body.model).pin(body)), headers)

    @delete(
        "/admin/cache/pins/{pin_id:str}",
        status_code=200,
        opt=describe("Unpin a prefix.", scope="admin", reply=PinInfo, query={"model": str}),
    )
    async def unpin_prefix(request: Request[Any, Any, Any], pin_id: str) -> ASGIApp:
        return json_response(await models.of(model_in(request)).unpin(pin_id))

    return [pin_prefix, unpin_prefix]


async def _trace_of(models: ByModel[AdminService], request_id: str) -> TraceReply:
    """Return the traces of a request to any model; raise the error of the last model if none has them."""
    *others, last = models
    for admin in others:
        with contextlib.suppress(NotFoundError, EngineError):
            return await admin.trace(request_id)
    return await last.trace(request_id)


def _read_most(text: str | None) -> int:
    if text is None:
        return DEFAULT_PREFIXES
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= MOST_PREFIXES):
        raise RequestError(
            f"most is {text[:100]!r}; it must be a number from 0 to {MOST_PREFIXES}", param="most"
        )
    return int(text)
