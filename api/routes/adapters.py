"""Routes by which administrators load and unload adapters. `admin.access` checks who may use them."""

from __future__ import annotations

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.admin.adapters import AdapterService
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.schemas.adapters import LoadAdapterRequest, LoadLoraRequest, UnloadLoraRequest
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.core.base.control import AdapterInfo, AdapterList
from llmfw.core.interfaces.operation import describe

from .respond import json_response, read_json


def adapter_routes(adapters: AdapterService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin/adapters`, and of vLLM's routes for adapters.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_own_routes(adapters, strict), *_vllm_routes(adapters, strict)]


def _own_routes(adapters: AdapterService, strict: bool) -> list[HTTPRouteHandler]:
    @get("/admin/adapters", opt=describe("List the adapters.", scope="admin", reply=AdapterList))
    async def list_adapters() -> ASGIApp:
        return json_response(await adapters.list())

    @post(
        "/admin/adapters",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Load an adapter, in place of an earlier one of its name.",
            scope="admin",
            body=LoadAdapterRequest,
            reply=AdapterInfo,
        ),
    )
    async def load_adapter(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), LoadAdapterRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await adapters.load(body.name, body.path), headers)

    @delete(
        "/admin/adapters/{name:path}",
        status_code=200,
        opt=describe("Unload an adapter once its requests have ended.", scope="admin", reply=AdapterList),
    )
    async def unload_adapter(name: str) -> ASGIApp:
        # A name may contain slashes, so it is the rest of the path. Litestar adds a leading one.
        return json_response(await adapters.unload(name.removeprefix("/")))

    return [list_adapters, load_adapter, unload_adapter]


def _vllm_routes(adapters: AdapterService, strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/v1/load_lora_adapter",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Load an adapter, as vLLM does.",
            scope="admin",
            body=LoadLoraRequest,
            reply=str,
            media_type="text/plain",
        ),
    )
    async def load_lora(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), LoadLoraRequest)
        headers = report_ignored(ignored, strict)
        await adapters.load(body.lora_name, body.lora_path)
        return _text(f"Success: LoRA adapter '{body.lora_name}' added successfully.", headers)

    @post(
        "/v1/unload_lora_adapter",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Unload an adapter, as vLLM does.",
            scope="admin",
            body=UnloadLoraRequest,
            reply=str,
            media_type="text/plain",
        ),
    )
    async def unload_lora(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), UnloadLoraRequest)
        headers = report_ignored(ignored, strict)
        await adapters.unload(body.lora_name)
        return _text(f"Success: LoRA adapter '{body.lora_name}' removed successfully.", headers)

    return [load_lora, unload_lora]


def _text(text: str, headers: dict[str, str]) -> ASGIResponse:
    return ASGIResponse(body=text.encode(), media_type="text/plain", headers=headers)
