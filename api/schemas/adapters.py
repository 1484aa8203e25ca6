"""Bodies of /admin/adapters, and of vLLM's routes for adapters. `llmfw.core.base.control` has the replies."""

from __future__ import annotations

from .common import Body


class LoadAdapterRequest(Body, kw_only=True):
    """Body of POST /admin/adapters.

    Attributes:
        name: name of the adapter for clients.
        path: folder with the adapter, on the server's machine.
    """

    name: str
    path: str


class LoadLoraRequest(Body, kw_only=True):
    """Body of POST /v1/load_lora_adapter."""

    lora_name: str
    lora_path: str
    load_inplace: bool | None = None


class UnloadLoraRequest(Body, kw_only=True):
    """Body of POST /v1/unload_lora_adapter."""

    lora_name: str
