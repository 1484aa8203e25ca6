"""Opens the stores of files, batches and responses that the settings choose. Does not import Litestar."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.user_path import storage_folder
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.interfaces.response_store import ResponseStore
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Registry

logger = logging.getLogger(__name__)

STORES: dict[str, type] = {
    "file_store": FileStore,
    "batch_store": BatchStore,
    "response_store": ResponseStore,
}


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of files, batches and responses.

    Attributes:
        folder: folder of `--storage`; None if it is not set.
        response_store: name of the store of responses, for errors.
    """

    files: FileStore
    batches: BatchStore
    responses: ResponseStore
    folder: Path | None = None
    response_store: str = "memory"

    async def close(self) -> None:
        """Close all stores."""
        await self.responses.close()
        await self.batches.close()
        await self.files.close()


async def open_stores(config: ServerConfig, registry: Registry) -> Stores:
    """Open the stores that the settings choose.

    Raises:
        ConfigError: a store is unknown or cannot use the folder, or an option is wrong. All stores are closed
            then.
    """
    folder = storage_folder(config.storage) if config.storage is not None else None
    args = {"response_store": (config.response_store_mb * 2**20,)}
    stores: list[Any] = []
    names: list[str] = []
    try:
        for kind, interface in STORES.items():
            name = getattr(config, kind)
            if name == "auto":
                name = default_name(registry, kind, "memory" if folder is None else "sqlite")
            entry = registry.find(kind, name)
            made = guarded(entry.load(), interface, registry.ledger.of(entry))
            given = entry.built_with(config.options)
            stores.append(await asyncio.to_thread(entry.build, made, folder, *args.get(kind, ()), **given))
            names.append(entry.name)
    except BaseException:
        for store in stores:
            await store.close()
        raise
    logger.info("%s", _where(names, folder))
    files, batches, responses = stores
    return Stores(files=files, batches=batches, responses=responses, folder=folder, response_store=names[-1])


def _where(names: Sequence[str], folder: Path | None) -> str:
    """Return a log line that says where files, batches and responses are stored.

    Args:
        names: names of the stores of files, batches and responses.
    """
    if set(names) == {"memory"}:
        return "Files, batches and responses end with the server; --storage DIR keeps them in a folder"
    if set(names) == {"sqlite"}:
        return f"Files, batches and responses are kept in the folder {folder}"
    files, batches, responses = names
    return f"Files are kept by {files!r}, batches by {batches!r}, responses by {responses!r}"
