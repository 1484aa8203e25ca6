"""Loads, unloads and lists the engine's adapters for administrators, and keeps the names that clients may use."""

from __future__ import annotations

import asyncio

from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    ListAdapters,
    LoadAdapter,
    UnloadAdapter,
)
from llmfw.core.base.errors import RequestError
from llmfw.core.client.client import EngineClient

POLL_S = 0.02
"""Seconds between two questions whether an adapter is loaded."""


class AdapterService:
    """Sends an administrator's commands about adapters to the engine.

    Args:
        client: a started engine client.
        names: names of the model and its adapters, which are kept up to date.
    """

    def __init__(self, client: EngineClient, names: ModelNames) -> None:
        self._client = client
        self._names = names

    async def list(self) -> AdapterList:
        """Return all adapters."""
        return await self._ask(ListAdapters())

    async def load(self, name: str, path: str) -> AdapterInfo:
        """Load an adapter, and return it once it accepts requests. Replaces an adapter of the same name.

        Raises:
            RequestError: the adapter cannot be loaded; the earlier adapter still accepts requests.
        """
        if self._names.is_base(name):
            raise RequestError(
                f"the adapter's name is {name!r:.100}, which is the model's; choose another one", param="name"
            )
        found = await self._ask(LoadAdapter(name, path))
        version = max(each.version for each in found.adapters if each.name == name)
        while (info := _find(found, name, version)).state == "loading":
            await asyncio.sleep(POLL_S)
            found = await self._ask(ListAdapters())
        if info.state == "failed":
            raise RequestError(info.error, param="path", code="adapter_not_loaded")
        return info

    async def unload(self, name: str) -> AdapterList:
        """Stop an adapter from accepting new requests, and return all adapters. Running requests continue.

        Raises:
            ModelNotFoundError: there is no such adapter.
        """
        return await self._ask(UnloadAdapter(name))

    async def _ask(self, command: AdapterCommand) -> AdapterList:
        answer = await self._client.control(command)
        assert isinstance(answer, AdapterList), f"the engine answered {type(command).__name__} by {answer!r}"
        self._names.update(answer.adapters)
        return answer


def _find(found: AdapterList, name: str, version: int) -> AdapterInfo:
    """Return an adapter by its name and load number; raise RequestError if the engine has forgotten it."""
    for each in found.adapters:
        if (each.name, each.version) == (name, version):
            return each
    raise RequestError(
        "the adapter was unloaded, or the engine restarted, while it was being loaded; load it again",
        param="name",
    )
