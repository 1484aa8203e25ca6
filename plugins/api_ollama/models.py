"""Ollama's routes about models: lists, descriptions, the version, and refusals to change a model."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from litestar import Controller, Request, delete, get, head, post
from litestar.datastructures import State

from llmfw.core import EngineClient, EngineInfo, RequestError, ServerAPI, describe

from .bodies import ShowBody
from .errors import OLLAMA_HANDLERS
from .names import name_in, tagged
from .reply import Json, timestamp

VERSION = "0.13.0"
"""Version of Ollama whose API these routes implement.

Clients compare it with the oldest version that they support.
"""

NEVER = "2200-01-01T00:00:00Z"
"""Time at which the model will be unloaded. llmfw never unloads the model, but clients expect a time."""


class Models(Controller):
    """Ollama's routes about models. The server has one model, and its adapters."""

    exception_handlers = OLLAMA_HANDLERS

    @head(
        ["/api/tags", "/api/version"],
        opt=describe(
            "Answer HEAD requests, by which clients check whether a server is running.", scope="models"
        ),
    )
    async def probe(self) -> None:
        """Answer HEAD requests, by which clients check whether a server is running."""

    @get("/api/version", opt=describe("Return the version of Ollama's API.", scope="models"))
    async def show_version(self) -> Json:
        """Return the version of Ollama's API."""
        return {"version": VERSION}

    @get("/api/tags", opt=describe("List the server's model and its adapters.", scope="models"))
    async def list_models(self, state: State) -> Json:
        """List the server's model and its adapters."""
        modified = {"modified_at": _created(state["api"])}
        return {"models": [{**card, **modified} for card in _cards(state)]}

    @get(
        "/api/ps",
        opt=describe("List the loaded models: always the server's model and its adapters.", scope="models"),
    )
    async def list_running(self, state: State) -> Json:
        """List the loaded models: always the server's model and its adapters."""
        client: EngineClient = state["client"]
        cards = _cards(state)
        vram = cards[0]["size"] if client.info.device.startswith("cuda") else 0
        memory = {"expires_at": NEVER, "size_vram": vram, "context_length": client.info.max_model_len}
        return {"models": [{**card, **memory} for card in cards]}

    @post("/api/show", status_code=200, opt=describe("Describe the model.", scope="models"))
    async def show(self, request: Request[Any, Any, Any], state: State) -> Json:
        """Describe the model."""
        api: ServerAPI = state["api"]
        client: EngineClient = state["client"]
        body, _ = await api.read(request, ShowBody)
        name = body.model or body.name
        if not name:
            raise RequestError("model is missing; it is required", param="model")
        named = name_in(name, api.model)
        return {
            "modelfile": f"FROM {named}\n",
            "parameters": "",
            "template": api.model.template,
            "details": _details(client.info),
            "model_info": _model_info(client.info),
            "capabilities": sorted(api.model.capabilities),
            "modified_at": _created(api),
        }

    @post(
        ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/{digest:str}"],
        status_code=200,
        opt=describe("Refuse to add or change a model.", scope="models"),
    )
    async def change(self, request: Request[Any, Any, Any], state: State) -> None:
        """Refuse to add or change a model."""
        _refuse(request, state)

    @delete("/api/delete", status_code=200, opt=describe("Refuse to delete a model.", scope="models"))
    async def remove(self, request: Request[Any, Any, Any], state: State) -> None:
        """Refuse to delete a model."""
        _refuse(request, state)


def _refuse(request: Request[Any, Any, Any], state: State) -> None:
    name = state["api"].model.name
    raise RequestError(
        f"{request.url.path} is not supported: this server has the model {name!r} and changes none; "
        "start another server by `llmfw serve NAME`, which downloads the model if needed",
        code="unsupported_operation",
    )


def _cards(state: State) -> list[Json]:
    """Return the entries of the model and of its adapters as /api/tags and /api/ps list them."""
    model, info = state["api"].model, state["client"].info
    size = _size(info.model)
    return [
        {
            "name": tagged(name),
            "model": tagged(name),
            "size": size,
            "digest": _digest(name, info),
            "details": _details(info) | ({} if name == model.name else {"parent_model": tagged(model.name)}),
        }
        for name in (model.name, *model.adapters)
    ]


def _details(info: EngineInfo) -> Json:
    family = _family(info)
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": "",  # not known
        "quantization_level": info.quantization or info.dtype,
    }


def _model_info(info: EngineInfo) -> Json:
    family = _family(info)
    found: Json = {"general.architecture": family, f"{family}.context_length": info.max_model_len}
    if info.embedding_size:
        found[f"{family}.embedding_length"] = info.embedding_size
    return found


def _family(info: EngineInfo) -> str:
    return info.architecture.removesuffix("ForCausalLM").removesuffix("Model").lower()


def _size(model: str) -> int:
    """Return the total size in bytes of the safetensors files in a model's folder; 0 if there are none."""
    return sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def _digest(name: str, info: EngineInfo) -> str:
    """Return a digest of the model's name, path, dtype, quantization and weight version."""
    parts = (name, info.model, info.dtype, info.quantization, info.weight_version)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _created(api: ServerAPI) -> str:
    return timestamp(datetime.fromtimestamp(api.model.created, UTC))
