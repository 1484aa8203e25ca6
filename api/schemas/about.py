"""Reply of GET /: name, version and model of the server."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class Links(Struct, kw_only=True):
    """Paths of the server's main routes."""

    models: str = "/v1/models"
    openapi: str = "/openapi.json"
    health: str = "/health"


class About(Struct, kw_only=True):
    """Reply of GET /. A server with API keys omits `version` and `model`, because this route needs no key."""

    name: str = "llmfw"
    description: str = "Serves a language model to OpenAI clients; their base URL is this one and /v1."
    version: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    links: Links
