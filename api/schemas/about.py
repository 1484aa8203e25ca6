"""What the server is."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class Links(Struct, kw_only=True):
    """Paths to go on with."""

    models: str = "/v1/models"
    openapi: str = "/openapi.json"
    health: str = "/health"


class About(Struct, kw_only=True):
    """The server. A server with API keys leaves out `version` and `model`: this reply needs no key."""

    name: str = "llmfw"
    description: str = "Serves a language model to OpenAI clients; their base URL is this one and /v1."
    version: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    links: Links
