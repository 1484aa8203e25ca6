"""Ollama's routes about models: lists, descriptions, the version, and refusals to change a model."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from litestar import Controller, Request, delete, get, head, post
from litestar.datastructures import State

from llmfw.core import EngineClient, EngineInfo, RequestError, ServedModel, ServerAPI, describe

from .bodies import ShowBody
from .errors import OLLAMA_HANDLERS
from .names import model_in, tagged
from .reply import Json, timestamp

VERSION = "0.13.0"
"""Version of Ollama whose API these routes implement.

Clients compare it with the oldest version that they support.
"""

NEVER = "2200-01-01T00:00:00Z"
"""Time at which the model will be unloaded. llmfw never unloads the model, but clients expect a time."""


class Models(Controller):
    """Ollama's routes about the server's models and their adapters."""

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

    @get("/api/tags", opt=describe("List the server's models and their adapters.", scope="models"))
    async def list_models(self, state: State) -> Json:
        """List the server's models and their adapters."""
        modified = {"modified_at": _created(state["api"])}
        return {"models": [{**card, **modified} for _, card in _cards(state)]}

    @get(
        "/api/ps",
        opt=describe(
            "List the loaded models: always the server's models and their adapters.", scope="models"
        ),
    )
    async def list_running(self, state: State) -> Json:
        """List the loaded models: always the server's models and their adapters."""
        return {"models": [{**card, **_memory(card, info)} for info, card in _cards(state)]}

    @post("/api/show", status_code=200, opt=describe("Describe the model.", scope="models"))
    async def show(self, request: Request[Any, Any, Any], state: State) -> Json:
        """Describe the model."""
        api: ServerAPI = state["api"]
        body, _ = await api.read(request, ShowBody)
        name = body.model or body.name
        if not name:
            raise RequestError("model is missing; it is required", param="model")
        named, model = model_in(name, api.models)
        info = _info_of(model, state)
        return {
            "modelfile": f"FROM {named}\n",
            "parameters": "",
            "template": model.template,
            "details": _details(info),
            "model_info": _model_info(info),
            "capabilities": sorted(model.capabilities),
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
    names = ", ".join(repr(model.name) for model in state["api"].models)
    raise RequestError(
        f"{request.url.path} is not supported: this server has {names} and changes no model; "
        "start another server by `llmfw serve NAME`, which downloads the model if needed",
        code="unsupported_operation",
    )


def _info_of(model: ServedModel, state: State) -> EngineInfo:
    client: EngineClient = state["client"]
    return model.info or client.info


def _memory(card: Json, info: EngineInfo) -> Json:
    """Return the members that /api/ps has in addition to those of /api/tags."""
    vram = card["size"] if info.device.startswith("cuda") else 0
    return {"expires_at": NEVER, "size_vram": vram, "context_length": info.max_model_len}


def _cards(state: State) -> list[tuple[EngineInfo, Json]]:
    """Return the entries of all models and adapters as /api/tags and /api/ps list them, each with its engine."""
    return [
        (info, card)
        for model in state["api"].models
        for info in [_info_of(model, state)]
        for card in _cards_of(model, info)
    ]


def _cards_of(model: ServedModel, info: EngineInfo) -> list[Json]:
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
